// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// recorder is an IPAM plugin of the suite's own that notes how it was called
// and answers as it is told. It is how the suite sees delegation.
type recorder struct {
	c       *C
	dir     string
	Section Object // for "ipam"
}

// recorderScript notes environment and stdin, prints "log line" to stderr and
// then does what the file answer-VERB says, or succeeds silently.
const recorderScript = `#!/bin/sh
dir=%s
n=$(ls "$dir/calls" | wc -l)
call=$dir/calls/$(printf %%03d "$n")-$CNI_COMMAND
cat > "$call"
env > "$call.env"
echo "recorder was here: $CNI_COMMAND" >&2
[ -f "$dir/answer-$CNI_COMMAND" ] && . "$dir/answer-$CNI_COMMAND"
exit 0
`

const grant = `{"cniVersion":"1.1.0","ips":[{"address":"10.55.0.5/24","gateway":"10.55.0.1"}],"routes":[{"dst":"0.0.0.0/0"}],"dns":{"nameservers":["10.55.0.53"]}}`

// Recorder installs the plugin. It answers ADD with one address.
func (c *C) Recorder() *recorder {
	r := &recorder{c: c, dir: c.Path("recorder"), Section: Object{"type": "recorder", "own": List{1, "two"}}}
	c.Must(os.MkdirAll(filepath.Join(r.dir, "calls"), 0o755), "make the recorder's directory")
	script := fmt.Sprintf(recorderScript, r.dir)
	c.Must(os.WriteFile(filepath.Join(r.dir, "recorder"), []byte(script), 0o755), "write the recorder")
	r.Answer("ADD", grant, 0)
	return r
}

// Answer makes the plugin print a text and exit with a code.
func (r *recorder) Answer(verb, stdout string, code int) {
	r.AnswerScript(verb, fmt.Sprintf("cat <<'END'\n%s\nEND\nexit %d\n", stdout, code))
}

// AnswerScript makes the plugin run shell commands.
func (r *recorder) AnswerScript(verb, script string) {
	r.c.Must(os.WriteFile(filepath.Join(r.dir, "answer-"+verb), []byte(script), 0o644), "write the answer")
}

// recorded is one call that the plugin got.
type recorded struct {
	Verb  string
	Env   map[string]string
	Stdin []byte
}

// Calls returns the calls so far, oldest first.
func (r *recorder) Calls() []recorded {
	entries, err := os.ReadDir(filepath.Join(r.dir, "calls"))
	r.c.Must(err, "list the recorder's calls")
	var calls []recorded
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".env") {
			continue
		}
		path := filepath.Join(r.dir, "calls", e.Name())
		call := recorded{Verb: e.Name()[4:], Env: map[string]string{}}
		call.Stdin, err = os.ReadFile(path)
		r.c.Must(err, "read a call")
		env, err := os.ReadFile(path + ".env")
		r.c.Must(err, "read a call's environment")
		for line := range strings.Lines(string(env)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			call.Env[key] = value
		}
		calls = append(calls, call)
	}
	return calls
}

// Verbs returns the verbs of the calls so far, in order.
func (r *recorder) Verbs() string {
	var verbs []string
	for _, call := range r.Calls() {
		verbs = append(verbs, call.Verb)
	}
	return join(verbs)
}

// Do executes a verb of the subject with the recorder as its IPAM plugin.
func (r *recorder) Do(n *Network, verb string, a Attachment, edits ...func(Object)) *Call {
	c := r.c
	env := c.env(verb, a)
	env["CNI_PATH"] = r.dir + ":" + env["CNI_PATH"]
	conf := n.Conf(append([]func(Object){set("ipam", r.Section)}, edits...)...)
	return c.Exec(c.Subject.Binary, env, c.encode(conf))
}

// sameConfig expects the recorder to have been given the configuration that
// the plugin was given.
func (r *recorder) sameConfig(call *Call, got recorded) {
	var sent, received Object
	r.c.Must(json.Unmarshal(call.Stdin, &sent), "decode what was sent")
	if err := json.Unmarshal(got.Stdin, &received); err != nil {
		r.c.Errorf("%s: the delegate got no JSON: %v", got.Verb, err)
		return
	}
	if asJSON(sent) != asJSON(received) {
		r.c.Errorf("%s: the delegate got another configuration:\nsent     %s\nreceived %s", got.Verb, asJSON(sent), asJSON(received))
	}
}
