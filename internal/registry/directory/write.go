// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/convert"
)

// Names of the writers' own files.
const (
	ownDir    = ".weft"
	lockFile  = ownDir + "/lock"
	draftFile = ownDir + "/draft"
)

// lockPause is how long a writer waits before it tries the lock again. Waiting
// in flock(2) could not be given up.
const lockPause = 2 * time.Millisecond

// Create implements registry.Leases. The registry sets UID, Version and
// Created.
func (d *Directory) Create(ctx context.Context, l cluster.Lease) error {
	l.UID, l.Version, l.Created = newUID(), "1", time.Now().UnixNano()
	return d.write(ctx, func(root *os.Root) error {
		if err := draft(root, l); err != nil {
			return err
		}
		if err := root.MkdirAll(leases, 0o755); err != nil {
			return err
		}
		err := root.Link(draftFile, leaseFile(l.Name()))
		if errors.Is(err, fs.ErrExist) {
			return registry.ErrExists
		}
		return err
	})
}

// Replace implements registry.Leases. When the lease was created stays.
func (d *Directory) Replace(ctx context.Context, l cluster.Lease) error {
	return d.write(ctx, func(root *os.Root) error {
		now, err := d.current(l.Name())
		if errors.Is(err, fs.ErrNotExist) || err == nil && (now.UID != l.UID || now.Version != l.Version) {
			return registry.ErrConflict
		}
		if err != nil {
			return err
		}
		l.Version, l.Created = versionAfter(now.Version), now.Created
		if err := draft(root, l); err != nil {
			return err
		}
		return root.Rename(draftFile, leaseFile(l.Name()))
	})
}

// Delete implements registry.Leases.
func (d *Directory) Delete(ctx context.Context, l cluster.Lease) error {
	return d.write(ctx, func(root *os.Root) error {
		now, err := d.current(l.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case now.UID != l.UID:
			return registry.ErrConflict
		}
		return root.Remove(leaseFile(l.Name()))
	})
}

// write lets one writer of this machine do something.
func (d *Directory) write(ctx context.Context, do func(*os.Root) error) error {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.MkdirAll(ownDir, 0o755); err != nil {
		return err
	}
	lock, err := root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() // which unlocks it
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s, which another writer holds: %w", lock.Name(), ctx.Err())
		case <-time.After(lockPause):
		}
	}
	return do(root)
}

// draft writes a lease to where nobody reads it. The lock makes the name its
// writer's own. What a crashed writer left there may be a lease's second name:
// it is removed, never written to.
func draft(root *os.Root, l cluster.Lease) error {
	text, err := yaml.Marshal(convert.SubnetLease(l))
	if err != nil {
		return fmt.Errorf("write SubnetLease %s as YAML: %w", l.Name(), err)
	}
	if err := root.Remove(draftFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(draftFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// current returns what there is of a lease: fs.ErrNotExist if there is none.
func (d *Directory) current(name string) (cluster.Lease, error) {
	t, err := openTree(d.path)
	if err != nil {
		return cluster.Lease{}, err
	}
	defer t.Close()
	r := readOne(t, leaseFile(name))
	if r.err != nil {
		return cluster.Lease{}, fmt.Errorf("file %s: %w", r.name, r.err)
	}
	for _, e := range r.manifest.entries {
		if e.key != (registry.Key{Kind: registry.SubnetLease, Name: name}) {
			continue
		}
		if e.err != nil {
			return cluster.Lease{}, fmt.Errorf("file %s: %w", r.name, e.err)
		}
		return e.value.(cluster.Lease), nil
	}
	return cluster.Lease{}, fmt.Errorf("file %s does not hold the lease", r.name)
}

// newUID returns a random UUID (RFC 9562, version 4).
func newUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// versionAfter returns another version. One that is no number is somebody
// else's.
func versionAfter(version string) string {
	n, _ := strconv.ParseUint(version, 10, 63)
	return strconv.FormatUint(n+1, 10)
}
