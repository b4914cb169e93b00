// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// netSysctls is all that Weft writes of /proc/sys.
const netSysctls = "/proc/sys/net"

// WritableSysctls makes the kernel's network parameters writable for this
// process where they are mounted read-only, as in every container that is not
// privileged. It changes the mounts of this process' mount namespace alone, and
// in it those of /proc/sys/net alone: the rest of /proc/sys stays read-only. It
// needs CAP_SYS_ADMIN then. It may be called again.
func WritableSysctls() error {
	return writable(netSysctls)
}

// writable mounts a directory over itself, because only what is a mount of its
// own can be made writable by itself.
func writable(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("inspect %s: %w", dir, err)
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		return nil
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		return needsAdmin("mount "+dir+" over itself", err)
	}
	flags := uintptr(unix.MS_REMOUNT | unix.MS_BIND)
	for st1, ms := range map[int64]uintptr{
		unix.ST_NOSUID: unix.MS_NOSUID, unix.ST_NODEV: unix.MS_NODEV, unix.ST_NOEXEC: unix.MS_NOEXEC, unix.ST_RELATIME: unix.MS_RELATIME,
	} {
		if int64(st.Flags)&st1 != 0 {
			flags |= ms
		}
	}
	if err := unix.Mount("", dir, "", flags, ""); err != nil {
		return needsAdmin("mount "+dir+" writable", err)
	}
	return nil
}

func needsAdmin(op string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%s: %w; it is read-only here: the container needs the capability SYS_ADMIN and no AppArmor profile that forbids mounts, or a writable /proc/sys", op, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}
