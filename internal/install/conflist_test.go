// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/cni"
)

var update = flag.Bool("update", false, "write golden files")

// configuration is what the agent has after reading a file with an empty cni.
func configuration(t *testing.T, more string) v1alpha1.CNIConfiguration {
	t.Helper()
	c, err := v1alpha1.ParseAgentConfiguration([]byte("apiVersion: weft.dev/v1alpha1\nkind: AgentConfiguration\n" +
		"network: {ranges: [[{subnet: 10.42.0.0/24}]]}\ncni: {" + more + "}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return *c.CNI
}

func TestConflist(t *testing.T) {
	for golden, more := range map[string]string{
		"default":   "",
		"elsewhere": "networkName: pods, socket: /host/run/w/a.sock, stateDir: /host/run/w, logFile: /var/log/weft-cni.log",
	} {
		got := Conflist(configuration(t, more))
		path := filepath.Join("testdata", golden+".conflist")
		if *update {
			write(t, path, string(got), 0o644)
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", golden, diff)
		}
	}
}

// The list goes the way of a runtime: libcni reads it, and the plugin reads what
// libcni makes of it.
func TestConflistIsUnderstood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "10-weft.conflist")
	if _, err := WriteConflist(path, Conflist(configuration(t, "logFile: /var/log/weft-cni.log"))); err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if list.Name != "weft" || list.CNIVersion != "1.1.0" || len(list.Plugins) != 1 || list.DisableGC || list.DisableCheck {
		t.Fatalf("libcni read %+v", list)
	}
	if diff := cmp.Diff(capabilities, list.Plugins[0].Network.Capabilities); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	var stdin map[string]any
	if err := json.Unmarshal(list.Plugins[0].Bytes, &stdin); err != nil {
		t.Fatal(err)
	}
	stdin["name"], stdin["cniVersion"] = list.Name, list.CNIVersion
	raw, err := json.Marshal(stdin)
	if err != nil {
		t.Fatal(err)
	}
	to, quick := cni.ParseForwarding(raw)
	want := cni.Forwarding{Socket: "/run/weft/agent.sock", Timeout: cni.DefaultTimeout, LogFile: "/var/log/weft-cni.log"}
	if !quick || to != want {
		t.Errorf("the shim read %+v (%v), want %+v", to, quick, want)
	}
	c, cerr := cni.ParseConfig(cni.Call{Command: cni.Add, ContainerID: "c", Netns: "/n", Ifname: "eth0", Stdin: raw})
	if cerr != nil {
		t.Fatal(cerr)
	}
	if !c.Thick() || c.StateDir != "/run/weft" {
		t.Errorf("the plugin read %+v", c)
	}
}

// A runtime with an older libcni knows cniVersion alone.
func TestConflistForOlderRuntimes(t *testing.T) {
	var list struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(Conflist(configuration(t, "")), &list); err != nil {
		t.Fatal(err)
	}
	if list.CNIVersion != "1.0.0" || !cni.Supported(list.CNIVersion) {
		t.Errorf("cniVersion %q", list.CNIVersion)
	}
}

// Of the files beside the agent's list, those go that the agent wrote under
// another name, and nobody else's.
func TestFormerListsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	c := configuration(t, "confFile: "+dir+"/20-weft.conflist")
	own := string(Conflist(c))
	another := func(more string) string { return string(Conflist(configuration(t, more))) }
	files := map[string]struct {
		content string
		goes    bool
	}{
		"20-weft.conflist":         {own, false},
		"10-weft.conflist":         {own, true},
		"10-renamed.conflist":      {another("networkName: pods, logFile: /var/log/w.log"), true},
		"30-older.conflist":        {strings.Replace(own, `"0.4.0",`, `"0.3.1",`, 1), true}, // what another release may write
		"10-weft.conflist.bak":     {own, false},                                            // no runtime reads it
		"11-other-agent.conflist":  {another("socket: /run/other/agent.sock, stateDir: /run/other"), false},
		"12-other-socket.conflist": {another("socket: /run/other/agent.sock"), false},
		"13-edited.conflist":       {strings.Replace(own, `"name"`, `"disableGC": true, "name"`, 1), false},
		"14-spaces.conflist":       {own + "\n", false},
		"15-chained.conflist":      {strings.Replace(own, `"plugins": [`, `"plugins": [{"type": "tuning"},`, 1), false},
		"16-foreign.conflist":      {`{"cniVersion": "1.0.0", "name": "x", "plugins": [{"type": "bridge"}]}`, false},
		"17-broken.conflist":       {`{"cniVersion`, false},
	}
	for name, f := range files {
		write(t, filepath.Join(dir, name), f.content, 0o644)
	}
	if err := os.Symlink("20-weft.conflist", filepath.Join(dir, "05-link.conflist")); err != nil {
		t.Fatal(err)
	}
	removed, err := RemoveFormer(c)
	if want := []string{"10-renamed.conflist", "10-weft.conflist", "30-older.conflist"}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %v, %v, want %v", removed, err, want)
	}
	for name, f := range files {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) == f.goes {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "05-link.conflist")); err != nil {
		t.Error(err)
	}
	if again, err := RemoveFormer(c); err != nil || len(again) != 0 {
		t.Errorf("a second time: removed %v, %v", again, err)
	}
}
