// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolRequest is struct ifreq with a pointer to struct ethtool_value.
type ethtoolRequest struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte // the kernel's union is larger than a pointer
}

type ethtoolValue struct{ cmd, data uint32 }

// txChecksum reports whether a device takes packets whose checksums are still
// to be computed. In a VXLAN device that means tx-checksum-ip-generic: it leaves
// the work to the hardware below, or to the kernel at the last moment.
func (h *Handle) txChecksum(ifname string) (on bool, err error) {
	v := ethtoolValue{cmd: unix.ETHTOOL_GTXCSUM}
	err = h.ethtool(ifname, &v)
	return v.data != 0, err
}

// setTxChecksum writes only what differs: a change makes the kernel rebuild the
// device's features.
func (h *Handle) setTxChecksum(ifname string, on bool) error {
	if is, err := h.txChecksum(ifname); err != nil || is == on {
		return err
	}
	v := ethtoolValue{cmd: unix.ETHTOOL_STXCSUM}
	if on {
		v.data = 1
	}
	return h.ethtool(ifname, &v)
}

func (h *Handle) ethtool(ifname string, v *ethtoolValue) error {
	return h.inside(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("checksum offload of %s: open socket: %w", ifname, err)
		}
		defer unix.Close(fd)
		req := ethtoolRequest{data: unsafe.Pointer(v)}
		copy(req.name[:unix.IFNAMSIZ-1], ifname)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
			return fmt.Errorf("checksum offload of %s: %w", ifname, errno)
		}
		return nil
	})
}

// ProbeChecksumOffload reports whether VXLAN devices may leave the checksums of
// inner packets to the hardware, and if not, why. Before Linux 5.7 (commit
// ea64d8d6c675, "netfilter: nat: never update the UDP checksum when it's 0")
// the kernel corrupts VXLAN's own UDP checksum where a packet passes NAT.
func ProbeChecksumOffload() (ok bool, why string) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return false, fmt.Sprintf("the kernel's version is unknown: %v", err)
	}
	return checksumOffload(unix.ByteSliceToString(name.Release[:]))
}

func checksumOffload(release string) (ok bool, why string) {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return false, fmt.Sprintf("the kernel's version %q is not understood", release)
	}
	if major > 5 || major == 5 && minor >= 7 {
		return true, ""
	}
	return false, fmt.Sprintf("Linux %s corrupts the checksums of VXLAN packets that pass NAT; 5.7 does not", release)
}
