// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// StaleFile is a file of another boot. What it describes is gone, but for what
// was reserved elsewhere: with a delegated IPAM plugin.
type StaleFile struct {
	Path string
	Boot string
	// Journal: it can be read by ReadStale. Otherwise it is what a repair or
	// a killed compaction left, only to be removed.
	Journal bool
}

// Stale lists the files of other boots, by name. A missing directory has none.
func Stale(dir string, opts ...Option) ([]StaleFile, error) {
	p, err := locate(dir, opts)
	if err != nil {
		return nil, err
	}
	return p.stale()
}

// Stale lists the files of other boots in the Store's directory.
func (s *Store[S]) Stale() ([]StaleFile, error) { return s.place.stale() }

func (p place) stale() ([]StaleFile, error) {
	files, err := os.ReadDir(p.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list state directory %s: %w", p.dir, err)
	}
	var stale []StaleFile
	for _, f := range files {
		rest, ok := strings.CutPrefix(f.Name(), journalPrefix)
		boot, _, suffixed := strings.Cut(rest, ".")
		if !ok || boot == p.boot || !isBootID(boot) || !f.Type().IsRegular() {
			continue
		}
		stale = append(stale, StaleFile{Path: filepath.Join(p.dir, f.Name()), Boot: boot, Journal: !suffixed})
	}
	return stale, nil
}

// ReadStale returns what a journal of another boot says, as far as its lines
// are good; the others are listed.
func ReadStale[S State](f StaleFile, newState func() S) (S, []CorruptError, error) {
	return salvagePlace(place{dir: filepath.Dir(f.Path), boot: f.Boot}, newState)
}

// RemoveStale removes a file that Stale listed. It is no error if another
// process was faster.
func RemoveStale(f StaleFile) error {
	if err := os.Remove(f.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the journal of boot %s: %w", f.Boot, err)
	}
	return nil
}
