// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"weft.dev/weft/api/v1alpha1"
)

// conflist is a network configuration list (CNI specification, section 1).
type conflist struct {
	CNIVersion  string        `json:"cniVersion"`
	CNIVersions []string      `json:"cniVersions"`
	Name        string        `json:"name"`
	Plugins     []pluginEntry `json:"plugins"`
}

// pluginEntry has what the plugin needs to hand a call to the agent, and no key
// that it would have to parse in full: see cni.ParseForwarding.
type pluginEntry struct {
	Type         string          `json:"type"`
	Socket       string          `json:"socket"`
	StateDir     string          `json:"stateDir"`
	LogFile      string          `json:"logFile,omitempty"`
	Capabilities map[string]bool `json:"capabilities"`
}

// capabilities are those that the agent acts on. "dns" is not among them,
// although it would: the kubelet writes the pod's resolv.conf itself, and a
// value that is refused would cost the pod its network for nothing. "ipRanges"
// is for networks without an agent.
var capabilities = map[string]bool{"bandwidth": true, "ips": true, "mac": true, "portMappings": true}

// Conflist returns the network configuration list for the runtime. The
// configuration must have its defaults.
//
// Runtimes with a libcni before 1.2 (containerd 1.x) know cniVersion only, and
// refuse a version that is newer than they are; the others take the newest of
// cniVersions that they know, and with 1.1.0 ask for STATUS and call GC.
func Conflist(c v1alpha1.CNIConfiguration) []byte {
	return conflist{
		CNIVersion:  "1.0.0",
		CNIVersions: []string{"0.4.0", "1.0.0", "1.1.0"},
		Name:        c.NetworkName,
		Plugins: []pluginEntry{{
			Type: PluginName, Socket: c.Socket, StateDir: c.StateDir, LogFile: c.LogFile, Capabilities: capabilities,
		}},
	}.encode()
}

func (l conflist) encode() []byte {
	out, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		panic("install: strings do not encode: " + err.Error())
	}
	return append(out, '\n')
}

// WriteConflist makes the file have this content, atomically, and reports
// whether it had not. The directory is made if it is missing.
func WriteConflist(path string, content []byte) (changed bool, err error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("make the directory of network configurations: %w", err)
	}
	release, err := holdDir(dir)
	if err != nil {
		return false, fmt.Errorf("write network configuration: %w", err)
	}
	defer release()
	if changed, err = replace(path, content, 0o644); err != nil {
		return changed, fmt.Errorf("write network configuration: %w", err)
	}
	return changed, nil
}

// RemoveFormer removes the lists beside ConfFile that an agent with this socket
// and state directory has written under other names, and returns those names: a
// runtime would take such a list for another network, or instead of ConfFile. A
// list counts as an agent's if it has its form to the byte; what somebody wrote
// by hand, or changed, stays, and so does a symbolic link.
func RemoveFormer(c v1alpha1.CNIConfiguration) (removed []string, err error) {
	dir := filepath.Dir(c.ConfFile)
	names, err := configurations(dir)
	if err != nil {
		return nil, err
	}
	release, err := holdDir(dir) // nobody of ours is writing one
	if err != nil {
		return nil, fmt.Errorf("remove a former network configuration: %w", err)
	}
	defer release()
	var errs []error
	for _, name := range names {
		path := filepath.Join(dir, name)
		if name == filepath.Base(c.ConfFile) || !wrote(c, path) {
			continue
		}
		if err := os.Remove(path); err != nil {
			errs = append(errs, fmt.Errorf("remove a former network configuration: %w", err))
			continue
		}
		removed = append(removed, name)
	}
	return removed, errors.Join(errs...)
}

// wrote reports whether an agent of this configuration, whatever its names, wrote
// the file. What cannot be read is nobody's.
func wrote(c v1alpha1.CNIConfiguration, path string) bool {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	var list conflist
	if json.Unmarshal(raw, &list) != nil || len(list.Plugins) != 1 {
		return false
	}
	p := list.Plugins[0]
	return p.Type == PluginName && p.Socket == c.Socket && p.StateDir == c.StateDir && bytes.Equal(raw, list.encode())
}
