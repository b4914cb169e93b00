// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// Names of the plugin's executable: one file that behaves by the name that it
// is called by.
const (
	PluginName = "weft-cni"
	IPAMName   = "weft-ipam"
)

// Binaries puts the plugin from into a runtime's directory of plugins, under
// both of its names. It may run beside itself and be killed at any moment: there
// is always a whole plugin, the old one or the new one, and calls that are under
// way end with the one that they began with. Nothing is written where the
// content is the same. The directory is made if it is missing.
func Binaries(dir, from string, log *slog.Logger) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read the plugin to install: %w", err)
	}
	if len(content) == 0 {
		return fmt.Errorf("install plugin %s: it is empty; expected the executable %s", from, PluginName)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the directory of plugins: %w", err)
	}
	release, err := holdDir(dir)
	if err != nil {
		return fmt.Errorf("install plugins: %w", err)
	}
	defer release()
	path := filepath.Join(dir, PluginName)
	changed, err := replace(path, content, 0o755)
	if err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	linked, err := linkTo(path, filepath.Join(dir, IPAMName))
	if err != nil {
		return fmt.Errorf("install plugin: %w", err)
	}
	log.Info("plugin installed", "path", path, "bytes", len(content), "changed", changed || linked)
	return nil
}

// linkTo makes name another name of the file, and reports whether it was not.
func linkTo(file, name string) (changed bool, err error) {
	target, err := os.Lstat(file)
	if err != nil {
		return false, err
	}
	is, err := os.Lstat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	// Asked for: rename(2) of two names of one file does nothing, and would
	// leave the temporary one.
	if err == nil && os.SameFile(is, target) {
		return false, nil
	}
	temporary := unfinished(name)
	if err := os.Link(file, temporary); err != nil {
		return false, err
	}
	if err := os.Rename(temporary, name); err != nil {
		return false, errors.Join(err, removeIfThere(temporary))
	}
	return true, syncDir(filepath.Dir(name))
}
