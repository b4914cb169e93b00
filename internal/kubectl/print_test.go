// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

// said is what a node says, in tests.
type said struct {
	node, stdout, stderr string
	err                  error
	silence              string
}

// told returns the complete answers of nodes that say this.
func told(t *testing.T, list []said) []*answer {
	var agents []agent
	by := map[string]said{}
	for _, s := range list {
		agents = append(agents, agent{node: s.node, pod: &corev1.Pod{}, silence: s.silence})
		by[s.node] = s
	}
	return collect(t.Context(), agents, 0, func(_ context.Context, a agent, stdout, stderr io.Writer) error {
		s := by[a.node]
		fmt.Fprint(stdout, s.stdout)
		fmt.Fprint(stderr, s.stderr)
		return s.err
	})
}

// What several nodes say is merged as in the golden files, in each format.
func TestMerged(t *testing.T) {
	const unknown = "weft: pod \"shop/web-0\": the agent remembers no ADD or DEL for it\n"
	lost := errors.New("the agent is not running: ImagePullBackOff: no such image; see: kubectl -n kube-system describe pod weft-x")
	for name, c := range map[string]struct {
		pod  string
		said []said
	}{
		"status": {"", []said{
			{node: "a", stdout: `[{"subsystem": "agent", "free": 18446744073709551615, "state": "<ok>"}]`},
			{node: "b", stdout: `[{"subsystem": "agent", "state": "problem"}]`, stderr: "weft: not all is well: see above\n", err: &refusal{1}},
			{node: "c", err: lost},
			{node: "d", err: errNoPod},
			{node: "e", stdout: `[{"cut": `, err: errors.New("the connection broke"), silence: "the node is not ready since yesterday"},
			{node: "f", stderr: "one\ntwo"},
			{node: "g", err: &refusal{137}},
		}},
		"text": {"", []said{{node: "a", stdout: "rebuilt: 3 records\n"}, {node: "b", stdout: "first: 1\nsecond: 2\n"}}},
		"one knows": {"shop/web-0", []said{
			{node: "a", stderr: unknown, err: &refusal{1}},
			{node: "b", stdout: `[{"step": "ADD"}]`},
			{node: "c", stderr: unknown, err: &refusal{1}},
			{node: "d", stderr: "weft: read the journal: damaged\n", err: &refusal{1}},
		}},
		"nobody knows": {"shop/web-0", []said{
			{node: "a", stderr: unknown, err: &refusal{1}},
			{node: "b", err: errNoPod},
			{node: "c", stderr: unknown, err: &refusal{1}},
		}},
		"lost one may know": {"shop/web-0", []said{
			{node: "a", stdout: `[{"step": "ADD"}]`},
			{node: "b", err: lost},
		}},
	} {
		for _, format := range []string{"table", "json", "yaml"} {
			t.Run(name+"/"+format, func(t *testing.T) {
				var stdout, stderr strings.Builder
				var err error
				if command := (Command{Format: format, Pod: c.pod}); command.structured() {
					err = new(cluster).printDocument(told(t, c.said), command, &stdout, &stderr)
				} else {
					err = new(cluster).printTables(t.Context(), told(t, c.said), c.pod, &stdout, &stderr)
				}
				golden(t, strings.ReplaceAll(name, " ", "-")+"."+format, fmt.Sprintf("%s--- standard error\n%s--- error\n%v\n", &stdout, &stderr, err))
			})
		}
	}
}

// The answer of the one node that was chosen is what it prints.
func TestPlain(t *testing.T) {
	for name, c := range map[string]struct {
		said                said
		stdout, stderr, err string
	}{
		"good":   {said{stdout: "x: 1\n", stderr: "by the way\n"}, "x: 1\n", "by the way\n", ""},
		"failed": {said{stdout: "bad\n", stderr: "weft: see above\n", err: &refusal{1}}, "bad\n", "", "node a: see above"},
		"lost":   {said{err: errors.New("gone"), silence: "the node is not ready"}, "", "", "node a: gone; the node is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			c.said.node = "a"
			var stdout, stderr strings.Builder
			err := new(cluster).printPlain(told(t, []said{c.said})[0], &stdout, &stderr)
			if stdout.String() != c.stdout || stderr.String() != c.stderr || (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
				t.Errorf("%q, %q, %v", &stdout, &stderr, err)
			}
		})
	}
}

// Who may not do it on one node is told once, not for each.
func TestForbiddenOnce(t *testing.T) {
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "weft-a", errors.New("no pods/exec"))
	list := []said{{node: "a", err: no}, {node: "b", err: no}}
	for _, format := range []string{"table", "json"} {
		var stdout, stderr strings.Builder
		var err error
		if format == "json" {
			err = new(cluster).printDocument(told(t, list), Command{Format: format}, &stdout, &stderr)
		} else {
			err = new(cluster).printTables(t.Context(), told(t, list), "", &stdout, &stderr)
		}
		if err == nil || strings.Count(err.Error(), "forbidden") != 1 || !strings.Contains(err.Error(), "create pods/exec") || stdout.Len()+stderr.Len() > 0 {
			t.Errorf("%s: %v, %q, %q", format, err, &stdout, &stderr)
		}
	}
}

// Who may not do it on one of the nodes sees what the others say.
func TestForbiddenOnOne(t *testing.T) {
	no := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "weft-b", errors.New("a policy says no"))
	list := []said{{node: "a", stdout: "1\n"}, {node: "b", err: no}, {node: "c", stdout: "3\n"}}
	var stdout, stderr strings.Builder
	err := new(cluster).printTables(t.Context(), told(t, list), "", &stdout, &stderr)
	if want := "==> a\n1\n==> c\n3\n"; stdout.String() != want || !strings.Contains(stderr.String(), "node b: ") || err == nil || err.Error() != "1 of 3 nodes failed: b" {
		t.Errorf("%q, %q, %v", &stdout, &stderr, err)
	}
	stdout.Reset()
	stderr.Reset()
	err = new(cluster).printDocument(told(t, list), Command{Format: "json"}, &stdout, &stderr)
	var got []entry
	if jerr := json.Unmarshal([]byte(stdout.String()), &got); jerr != nil || len(got) != 3 || !strings.Contains(got[1].Error, "a policy says no") || string(got[2].Output) != "3" || err == nil {
		t.Errorf("%q, %q, %v", &stdout, &stderr, err)
	}
}

// Whatever nodes print, the document can be read, has every node, and has what was
// JSON as the value that it was.
func TestDocumentIsWhole(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		texts := rapid.SliceOfN(rapid.OneOf(
			rapid.String(),
			rapid.SampledFrom([]string{`{"a": [1, "x", null]}`, `[]`, `18446744073709551615`, `"---"`, "null", `"\xff"`, "\"\ufeff\uffff\u2028\U0001f600\"", "{", "a: b"}),
		), 1, 5).Draw(r, "texts")
		var list []said
		for i, text := range texts {
			list = append(list, said{node: fmt.Sprintf("n%d", i), stdout: text})
		}
		for _, format := range []string{"json", "yaml"} {
			var stdout strings.Builder
			if err := new(cluster).printDocument(told(t, list), Command{Format: format}, &stdout, io.Discard); err != nil {
				r.Fatal(err)
			}
			document, err := []byte(stdout.String()), error(nil)
			if format == "yaml" {
				document, err = yaml.YAMLToJSON(document)
			}
			var got []entry
			if err == nil {
				err = json.Unmarshal(document, &got)
			}
			if err != nil || len(got) != len(list) {
				r.Fatalf("%v: document %q", err, &stdout)
			}
			for i, text := range texts {
				if want := strings.TrimSpace(text); json.Valid([]byte(want)) && !sameJSON(want, string(got[i].Output)) {
					r.Fatalf("%s: node %d printed %s, the document has %s", format, i, want, got[i].Output)
				}
			}
		}
	})
}

func sameJSON(a, b string) bool {
	read := func(s string) string {
		var v any
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		_ = d.Decode(&v)
		return fmt.Sprint(v)
	}
	return read(a) == read(b)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
