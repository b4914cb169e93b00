// SPDX-License-Identifier: Apache-2.0

package install

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// newSuffix ends the names of files that are being written. No runtime reads a
// configuration of such a name, and nobody executes a plugin of it.
const newSuffix = ".weft-new"

// holdDir locks a directory against other processes of ours until release is
// called, however this one ends. With the lock held, a file that is being
// written belongs to a process that died: it is removed.
func holdDir(dir string) (release func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	release = func() { d.Close() }
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		release()
		return nil, fmt.Errorf("lock directory %s: %w", dir, err)
	}
	if err := removeUnfinished(dir); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// removeUnfinished needs the directory held.
func removeUnfinished(dir string) error {
	left, err := filepath.Glob(filepath.Join(escapeGlob(dir), ".*"+newSuffix))
	if err != nil {
		return fmt.Errorf("look for unfinished files in %s: %w", dir, err)
	}
	for _, file := range left {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove an unfinished file: %w", err)
		}
	}
	return nil
}

func escapeGlob(path string) string {
	var b bytes.Buffer
	for _, c := range []byte(path) {
		if bytes.IndexByte([]byte(`*?[\`), c) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// unfinished returns the name under which the content of path is written. It is
// one name, because the directory is held.
func unfinished(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+newSuffix)
}

// replace makes a file have this content and mode, and reports whether it had
// not. Whoever opens it, at any moment and after any crash, gets the old content
// or the new one. The directory must be held.
func replace(path string, content []byte, mode os.FileMode) (changed bool, err error) {
	is, err := sameFile(path, content, mode)
	if err != nil || is {
		return false, err
	}
	temporary := unfinished(path)
	if err := writeSynced(temporary, content, mode); err != nil {
		return false, errors.Join(err, removeIfThere(temporary))
	}
	if err := os.Rename(temporary, path); err != nil {
		return false, errors.Join(err, removeIfThere(temporary))
	}
	return true, syncDir(filepath.Dir(path))
}

// sameFile reports whether there is a regular file with this content and mode. A
// symbolic link is replaced by the file: what it leads to is somebody else's.
func sameFile(path string, content []byte, mode os.FileMode) (bool, error) {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if st.IsDir() {
		return false, fmt.Errorf("write %s: there is a directory of this name; remove it", path)
	}
	if st.Mode() != mode || st.Size() != int64(len(content)) {
		return false, nil
	}
	is, err := os.ReadFile(path)
	return err == nil && bytes.Equal(is, content), err
}

func writeSynced(path string, content []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask is
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a rename survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, unix.EINVAL) {
		err = nil // a file system that knows no such thing
	}
	return errors.Join(err, d.Close())
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
