// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// stateFiles are the names of everything that Weft writes into its state
// directory. Nothing else is deleted: the directory's name comes from a person.
var stateFiles = []string{"journal.*", "lock", "collected*", "swept"}

func (n Node) removeState() ([]Outcome, error) {
	errs := []error{n.removeSocket()}
	entries, err := os.ReadDir(n.StateDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(errs...)
	}
	if err != nil {
		return nil, fmt.Errorf("list the state directory: %w", err)
	}
	var foreign []string
	for _, e := range entries {
		if e.IsDir() || !slices.ContainsFunc(stateFiles, func(pattern string) bool {
			match, _ := filepath.Match(pattern, e.Name())
			return match
		}) {
			foreign = append(foreign, e.Name())
			continue
		}
		_, err := removeFile(filepath.Join(n.StateDir, e.Name()))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	object := "state directory " + n.StateDir
	switch err := os.Remove(n.StateDir); {
	case err == nil:
		return []Outcome{{Object: object, State: Removed}}, nil
	case errors.Is(err, unix.EBUSY):
		return []Outcome{{Object: object, State: Kept, Reason: "emptied; something is mounted on it"}}, nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return []Outcome{{Object: object, State: Kept, Reason: fmt.Sprintf("it has files that Weft did not make: %v", foreign)}}, nil
	default:
		return nil, fmt.Errorf("remove the state directory: %w", err)
	}
}

// removeSocket removes the agent's socket, and nothing that is none.
func (n Node) removeSocket() error {
	st, err := os.Lstat(n.socket())
	if err != nil || st.Mode().Type() != fs.ModeSocket {
		return nil //nolint:nilerr // then there is no socket
	}
	_, err = removeFile(n.socket())
	return err
}

func removeFile(path string) (removed bool, err error) {
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
