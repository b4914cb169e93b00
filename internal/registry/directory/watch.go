// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watched are the events of inotify(7) that say that a file may be read, or is
// gone. A file that is linked into place is only created, so that counts too.
const watched = unix.IN_CREATE | unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW

// watch tells what has happened in the directory and its subdirectories.
type watch struct {
	file   *os.File
	fd     int
	dirs   map[int32]string // by watch descriptor; "." is the directory
	buffer [64 << 10]byte
}

// news is what has happened since the last look.
type news struct {
	files map[string]struct{} // look at these
	all   bool                // look at everything
	lost  bool                // the directory was deleted, or moved away
}

func newWatch() (*watch, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return nil, fmt.Errorf("start inotify: %w: raise fs.inotify.max_user_instances", err)
	}
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w", err)
	}
	return &watch{file: os.NewFile(uintptr(fd), "inotify"), fd: fd, dirs: map[int32]string{}}, nil
}

// add watches a directory of the tree, if it is not watched yet.
func (w *watch) add(t tree, dir string) error {
	// By descriptor, as the tree may have been moved.
	wd, err := unix.InotifyAddWatch(w.fd, fmt.Sprintf("/proc/self/fd/%d/%s", t.Fd(), dir), watched)
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("watch %s: %w: raise fs.inotify.max_user_watches", dir, err)
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	w.dirs[int32(wd)] = dir
	return nil
}

// interrupt ends a next whose context has ended.
func (w *watch) interrupt() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) }

// next waits for news. os.ErrDeadlineExceeded: there are none.
func (w *watch) next(ctx context.Context, until time.Time) (news, error) {
	if err := w.file.SetReadDeadline(until); err != nil {
		return news{}, err
	}
	if err := ctx.Err(); err != nil {
		return news{}, err // the interruption may have come before the deadline
	}
	n, err := w.file.Read(w.buffer[:])
	if err != nil {
		return news{}, err
	}
	found := news{files: map[string]struct{}{}}
	for events := w.buffer[:n]; len(events) >= unix.SizeofInotifyEvent; {
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(events[12:]))
		name, _, _ := bytes.Cut(events[unix.SizeofInotifyEvent:size], []byte{0})
		w.note(&found, int32(binary.NativeEndian.Uint32(events)), binary.NativeEndian.Uint32(events[4:]), string(name))
		events = events[size:]
	}
	return found, nil
}

func (w *watch) note(found *news, wd int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		found.all = true
		return
	}
	dir, known := w.dirs[wd]
	switch {
	case !known:
	case mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0:
		if mask&unix.IN_MOVE_SELF != 0 {
			// Wherever it is now, it may go on sending. It may as well have been
			// found under its new name: the scan watches it again.
			_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
		}
		delete(w.dirs, wd)
		found.lost = found.lost || dir == "."
		found.all = true
	case mask&unix.IN_ISDIR != 0:
		found.all = found.all || dir == "." && !strings.HasPrefix(name, ".")
	case isManifest(name):
		found.files[path.Join(dir, name)] = struct{}{}
	}
}
