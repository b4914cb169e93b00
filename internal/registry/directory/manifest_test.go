// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
	goyaml "sigs.k8s.io/yaml/goyaml.v2"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
)

func TestParse(t *testing.T) {
	lease := func(name string) string {
		return fmt.Sprintf("{apiVersion: weft.dev/v1alpha1, kind: SubnetLease, metadata: {name: %s}, spec: {subnet: 10.42.3.0/24, nodeName: a}}", name)
	}
	for name, c := range map[string]struct {
		file, text string
		want       []string // valid; "!" before those that are not
		documents  int
		wrong      string
		torn       bool
	}{
		"nothing":             {text: ""},
		"comments":            {text: "# a\n---\n\n# b\n---\n"},
		"one":                 {text: nodeText("a", "1"), want: []string{"Node a"}, documents: 1},
		"marked":              {text: "---\n" + nodeText("a", "1") + "...\n", want: []string{"Node a"}, documents: 1},
		"windows":             {text: "\ufeff" + strings.ReplaceAll("---\n"+nodeText("a", "1")+"---\n"+nodeText("b", "1"), "\n", "\r\n"), want: []string{"Node a", "Node b"}, documents: 2},
		"JSON with tabs":      {text: "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Namespace\",\n\t\"metadata\": {\"name\": \"x\"}\n}", want: []string{"Namespace x"}, documents: 1},
		"List":                {text: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: x}}\n- {apiVersion: v1, kind: Namespace, metadata: {name: z}}\n", want: []string{"Namespace x", "Namespace z"}, documents: 1},
		"Pods":                {text: "{apiVersion: v1, kind: Pod, metadata: {name: p}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: n1}}\n", want: []string{"Pod default/p", "Pod n1/p"}, documents: 2},
		"claims":              {text: "{apiVersion: weft.dev/v1alpha1, kind: AddressClaim, metadata: {name: p}, spec: {ipv4: 10.42.3.7}}\n---\n{apiVersion: weft.dev/v1alpha1, kind: AddressClaim, metadata: {name: p, namespace: n1}, spec: {}}\n", want: []string{"AddressClaim default/p", "!AddressClaim n1/p"}, documents: 2},
		"foreign":             {text: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: p}, metadata2: 5}\n---\n{apiVersion: v2, kind: Node, metadata: {name: p}}\n", documents: 2},
		"newer Node":          {text: nodeText("a", "1") + "future: {}\n", want: []string{"Node a"}, documents: 1},
		"wrong case":          {text: "{apiVersion: v1, Kind: Node, metadata: {name: a}}", documents: 1, wrong: "has no apiVersion or no kind", torn: true},
		"lease":               {file: "subnetleases/10-42-3-0-24.yaml", text: lease("10-42-3-0-24"), want: []string{"SubnetLease 10-42-3-0-24"}, documents: 1},
		"lease elsewhere":     {file: "10-42-3-0-24.yaml", text: lease("10-42-3-0-24"), documents: 1, wrong: "belongs in the file subnetleases/10-42-3-0-24.yaml"},
		"lease of other name": {file: "subnetleases/10-42-3-0-24.yaml", text: lease("10-42-4-0-24"), documents: 1, wrong: "belongs in the file subnetleases/10-42-4-0-24.yaml"},
		"lease as JSON":       {file: "subnetleases/10-42-3-0-24.json", text: lease("10-42-3-0-24"), documents: 1, wrong: "belongs in the file subnetleases/10-42-3-0-24.yaml"},
		"repeated JSON key":   {text: `{"apiVersion": "weft.dev/v1alpha1", "kind": "IPPool", "metadata": {"name": "a"}, "spec": {}, "spec": {}}`, want: []string{"!IPPool a"}, documents: 1},
		"good among bad":      {text: "][\n---\n" + nodeText("a", "1") + "---\n5\n", want: []string{"Node a"}, documents: 3, wrong: "document 3: is not an object", torn: true},
		"no name":             {text: "{apiVersion: v1, kind: Node}", documents: 1, wrong: "Node with the name", torn: true},
		"name with a path":    {text: "{apiVersion: v1, kind: Namespace, metadata: {name: ../a}}", documents: 1, wrong: "Namespace with the name", torn: true},
		"odd namespace":       {text: "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: b.c}}", documents: 1, wrong: "in the namespace", torn: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.file == "" {
				c.file = "x.yaml"
			}
			m := parse(c.file, []byte(c.text))
			var got []string
			for _, e := range m.entries {
				mark := ""
				if (e.err == nil) != (e.value != nil) {
					t.Errorf("%s: %v, %v", e.key, e.value, e.err)
				}
				if e.err != nil {
					mark = "!"
				}
				got = append(got, mark+e.key.String())
			}
			wrong := fmt.Sprint(errors.Join(m.wrong...))
			if !slices.Equal(got, c.want) || m.documents != c.documents || m.torn != c.torn ||
				(c.wrong == "") != (len(m.wrong) == 0) || !strings.Contains(wrong, c.wrong) {
				t.Errorf("parsed %q, %d documents, torn %v: %s", got, m.documents, m.torn, wrong)
			}
		})
	}
}

// What Weft writes it reads again, whatever is in it.
func TestLeaseSurvivesItsFile(t *testing.T) {
	w := t.TempDir()
	d := open(t, w)
	rapid.Check(t, func(rt *rapid.T) {
		l := leaseOf(rapid.IntRange(0, 200).Draw(rt, "block"), rapid.StringMatching(`[a-z0-9]([a-z0-9.]{0,8}[a-z0-9])?`).
			Filter(func(s string) bool { return !strings.Contains(s, "..") }).Draw(rt, "node"))
		l.Pool = rapid.SampledFrom([]string{"", "default", "true", "1e3", "0x1", "no", "null"}).Draw(rt, "pool")
		l.NodeUID = rapid.SampledFrom([]string{"", "0b2f8a4e-55a5-4b0e-9b3a-0d6f0d6d8a10", "12345", "1e100"}).Draw(rt, "uid")
		if rapid.Bool().Draw(rt, "no tunnels") {
			l.VTEP = cluster.VTEP{}
		}
		if err := d.Create(rt.Context(), l); err != nil {
			rt.Fatal(err)
		}
		got, err := d.current(l.Name())
		if err != nil {
			rt.Fatal(err)
		}
		if err := d.Delete(rt.Context(), got); err != nil {
			rt.Fatal(err)
		}
		l.UID, l.Version, l.Created = got.UID, got.Version, got.Created
		a, b := snapshot{Leases: map[string]cluster.Lease{"": l}}, snapshot{Leases: map[string]cluster.Lease{"": got}}
		if diff := difference(a, b); diff != "" {
			rt.Fatalf("written (-), read (+):\n%s", diff)
		}
	})
}

// What takes much time or memory to read for its size must take neither.
func TestHostileFiles(t *testing.T) {
	const size = sizeLimit / 4 // of which four times as much takes four times as long
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := range 30 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s*a%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 9), i)
	}
	var manyFields strings.Builder
	for i := 0; manyFields.Len() < size-100; i++ {
		fmt.Fprintf(&manyFields, "f%d: 1\n", i)
	}
	deepList := "{apiVersion: v1, kind: List, items: ["
	for name, text := range map[string]string{
		"alias bomb":      bomb.String(),
		"deep flow":       strings.Repeat("[", size),
		"deep maps":       strings.Repeat("{a: ", size/4),
		"deep blocks":     strings.Repeat("- ", size/2),
		"deep JSON":       strings.Repeat(`{"a":`, size/5),
		"many documents":  strings.Repeat("---\na\n", size/6),
		"many empty ones": strings.Repeat("---\n", size/4),
		"many ends":       strings.Repeat("...\n", size/4),
		"lists in lists":  strings.Repeat(deepList, 9000) + strings.Repeat("]}", 9000),
		"long scalar":     "a: " + strings.Repeat("x", size-4),
		"long key":        strings.Repeat("x", size-4) + ": a",
		"binary":          strings.Repeat("\x00\x01\xfe\xff", size/4),
		"many items":      "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- 5\n", size/4-10),
		"many JSON items": `{"apiVersion":"v1","kind":"List","items":[` + strings.Repeat("5,", size/2-50) + "5]}",
		"many maps":       "a:\n" + strings.Repeat("- {}\n", size/5-10),
		"many fields":     "apiVersion: weft.dev/v1alpha1\nkind: IPPool\nmetadata: {name: P}\n" + manyFields.String(),
		"control":         strings.Repeat("\x01", size),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := processTime(t)
			m := parse("x.yaml", []byte(text))
			took := processTime(t) - start
			runtime.ReadMemStats(&after)
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			if took > 20*time.Second || allocated > 2048 {
				t.Errorf("it took %v and allocated %d MiB", took, allocated)
			}
			t.Logf("%v, %d MiB", took, allocated)
			if len(m.entries) != 0 {
				t.Errorf("it holds %v", m.entries)
			}
		})
	}
}

// processTime is the processor time that this process has used: what something
// costs, however busy the machine is with other things.
func processTime(t *testing.T) time.Duration {
	t.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Where documents are cut agrees with the YAML library's own idea.
func TestDocuments(t *testing.T) {
	body := rapid.SampledFrom([]string{"", "# c\n", "\n", "a: 1\n", "b: [1,\n  2]\n", "c: |\n  x\n  ---\n  ...\n", "d: '\n  ---x'\n",
		"----\n", "---a\n", "....\n", "- 1\n- 2\n", "e: 1\n# c\n\n"})
	between := rapid.SampledFrom([]string{"---\n", "---\r\n", "--- \n", "--- # c\n", "...\n---\n", "...\n# c\n---\n", "...\n%YAML 1.1\n---\n"})
	rapid.Check(t, func(rt *rapid.T) {
		text := body.Draw(rt, "body")
		for range rapid.IntRange(0, 6).Draw(rt, "more") {
			text += between.Draw(rt, "between") + body.Draw(rt, "body")
		}
		text += rapid.SampledFrom([]string{"", "...\n", "---", "..."}).Draw(rt, "end")
		var want, got []any
		for d := goyaml.NewDecoder(strings.NewReader(text)); ; {
			var v any
			err := d.Decode(&v)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return // the library refuses an end of nothing
			}
			if v != nil {
				want = append(want, v)
			}
		}
		for document := range documents([]byte(text)) {
			var v any
			if err := goyaml.Unmarshal(document, &v); err != nil {
				rt.Fatalf("%q of %q: %v", document, text, err)
			}
			if v != nil {
				got = append(got, v)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			rt.Fatalf("%q: got %v, want %v", text, got, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		nodeText("a", "1"), poolText("p", "10.42.0.0/16") + "---\n" + nodeText("a", "1"), "{\"apiVersion\": \"v1\"}", "...\n---\n", "&a [*a]",
		"apiVersion: v1\nkind: List\nitems:\n- kind: Pod\n  apiVersion: v1\n  metadata: {name: a}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if joined := slices.Concat(slices.Collect(documents(data))...); !bytes.Equal(joined, data) {
			t.Errorf("documents of %q make %q", data, joined)
		}
		m := parse("x.yaml", data)
		store, x := registry.NewStore(), newIndex()
		x.put("x.yaml", stat{}, m)
		x.tell(store.Apply, store.Reject)
		for _, e := range m.entries {
			if (e.err == nil) != (e.value != nil) || x.owner[e.key] == nil {
				t.Errorf("entry %v", e)
			}
		}
		for object, reason := range contents(store).Rejected {
			if len(reason) > 1100 || strings.Contains(reason, "\n") || strings.Contains(object, "\n") {
				t.Errorf("%q is rejected because %q", object, reason)
			}
		}
		if m.torn && len(m.wrong) == 0 {
			t.Error("torn without a word")
		}
	})
}

func TestOpen(t *testing.T) {
	if _, err := Open("", "", nil); err == nil {
		t.Error("no path is a path")
	}
	t.Chdir(t.TempDir())
	must(t, os.Mkdir("here", 0o755))
	if d := open(t, "here"); !filepath.IsAbs(d.path) {
		t.Errorf("path %s", d.path)
	}
}
