// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakePlugin is a CNI plugin that writes down how it was called, and answers
// ADD with one address. A file "<verb>.fails" beside it makes the verb fail; a
// fifo "<verb>.hangs" makes it hang.
const fakePlugin = `#!/bin/sh
dir=$(dirname "$0")
echo "$CNI_COMMAND container=$CNI_CONTAINERID netns=$CNI_NETNS ifname=$CNI_IFNAME args=$CNI_ARGS path=$CNI_PATH in=$(readlink /proc/self/ns/net) stdin=$(tr -d ' \n')" >>"$dir/calls"
[ -p "$dir/$CNI_COMMAND.hangs" ] && read -r _ <"$dir/$CNI_COMMAND.hangs"
if [ -e "$dir/$CNI_COMMAND.fails" ]; then
	echo '{"cniVersion":"1.1.0","code":100,"msg":"told to fail"}'
	exit 1
fi
if [ "$CNI_COMMAND" = ADD ]; then
	echo '{"cniVersion":"1.1.0","ips":[{"address":"10.42.0.2/32"}],"routes":[]}'
fi
exit 0
`

// fake is a directory with the fake plugin, and a host and a spec that use it.
type fake struct {
	dir  string
	host Host
	spec Spec
}

func newFake(t *testing.T) fake {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fake"), []byte(fakePlugin), 0o755); err != nil {
		t.Fatal(err)
	}
	return fake{
		dir:  dir,
		host: Host{Root: DefaultRoot, BinDir: t.TempDir()},
		spec: Spec{
			Name: "fake", Mode: Thin, PluginDirs: []string{dir},
			Conflist: `{"cniVersion":"1.1.0","name":"weft","plugins":[{"type":"fake","capabilities":{"ips":true}}]}`,
		},
	}
}

// fakeWeft is an agent that claims its leases and then does nothing, and the
// command that asks it.
const fakeWeft = `#!/bin/sh
[ "$1" = agent ] || exit 0
node=$(sed -n 's/^nodeName: //p' "$3")
leases=$(sed -n 's/^  directory: //p' "$3")/subnetleases
mkdir -p "$leases"
lease() {
	cat >"$leases/.$1" <<END
metadata: {name: $1, ownerReferences: [{kind: Node, name: $node}]}
spec: {subnet: "$2"}
END
	mv "$leases/.$1" "$leases/$1.yaml"
}
lease "10-42-${node#node}-0-24" "10.42.${node#node}.0/24"
lease "fd00-42-0-${node#node}-0-0-0-0-64" "fd00:42:0:${node#node}::/64"
trap 'exit 0' TERM
while :; do
	sleep 1000 &
	wait
done
`

// newFakeCluster returns the fake as a thick lab of two nodes.
func newFakeCluster(t *testing.T) fake {
	t.Helper()
	f := newFake(t)
	if err := os.WriteFile(filepath.Join(f.host.BinDir, "weft"), []byte(fakeWeft), 0o755); err != nil {
		t.Fatal(err)
	}
	f.spec.Mode, f.spec.Nodes, f.spec.Segments = Thick, 2, 2
	return f
}

func (f fake) up(t *testing.T) {
	t.Helper()
	if err := f.host.Up(t.Context(), f.spec); err != nil {
		t.Fatal(err)
	}
}

// calls returns the calls of a verb since the last time it was asked.
func (f fake) calls(t *testing.T, verb string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var calls []string
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, verb+" "); ok {
			calls = append(calls, strings.TrimSpace(rest))
		}
	}
	return calls
}

func (f fake) fails(t *testing.T, verb string, yes bool) {
	t.Helper()
	path := filepath.Join(f.dir, verb+".fails")
	var err error
	if yes {
		err = os.WriteFile(path, nil, 0o644)
	} else {
		err = os.Remove(path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// observe returns the machine, and a check that it is the same again.
func observe(t *testing.T, binDir string) (unchanged func(when string)) {
	t.Helper()
	look := func() Machine {
		t.Helper()
		m, err := ObserveMachine(binDir)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	before := look()
	return func(when string) {
		t.Helper()
		if diff := before.Diff(look()); len(diff) > 0 {
			t.Errorf("%s: the machine changed:\n%s", when, strings.Join(diff, "\n"))
		}
	}
}

func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one that says %q", parts)
		return
	}
	want(t, fmt.Sprint(err), parts...)
}
