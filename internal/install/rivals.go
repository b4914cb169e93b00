// SPDX-License-Identifier: Apache-2.0

package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// extensions of the files that runtimes read: those of containerd and CRI-O.
var extensions = []string{".conf", ".conflist", ".json"}

// Rivals returns the other network configurations beside confFile, by name.
// Earlier ones come before it: a runtime takes them, for all pods or, where it
// is told to load several, as the pods' first network; one that cannot be parsed
// keeps containerd from any network. Foreign are the others: they come into
// effect when confFile goes. A missing directory has none.
func Rivals(confFile string) (earlier, foreign []string, err error) {
	names, err := configurations(filepath.Dir(confFile))
	if err != nil {
		return nil, nil, err
	}
	own := filepath.Base(confFile)
	for _, name := range names {
		switch {
		case name == own:
		case name < own:
			earlier = append(earlier, name)
		default:
			foreign = append(foreign, name)
		}
	}
	return earlier, foreign, nil
}

// configurations returns the names of the files that a runtime reads in a
// directory, in the order in which it does.
func configurations(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list network configurations: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains(extensions, filepath.Ext(e.Name())) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// callers returns the configurations in a directory, other than confFile, that
// execute one of the named plugins, also as another plugin's IPAM. What cannot
// be read executes nothing.
func callers(confFile string, plugins ...string) ([]string, error) {
	dir := filepath.Dir(confFile)
	names, err := configurations(dir)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		return name == filepath.Base(confFile) || err != nil || !executes(raw, plugins)
	}), nil
}

func executes(raw []byte, plugins []string) bool {
	type entry struct {
		Type string `json:"type"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	}
	var list struct {
		entry
		Plugins []entry `json:"plugins"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return false
	}
	return slices.ContainsFunc(append(list.Plugins, list.entry), func(e entry) bool {
		return slices.Contains(plugins, e.Type) || slices.Contains(plugins, e.IPAM.Type)
	})
}
