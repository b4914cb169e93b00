// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/kernel"
)

// bindNetns makes a network namespace, loopback up, and binds it to path as a
// runtime does. The thread is thrown away: that is the one way to be sure that
// a changed namespace never reaches other code.
func bindNetns(path string, fill func() error) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		if err == nil && fill != nil {
			err = fill()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return fmt.Errorf("make network namespace %s: %w", path, err)
	}
	return nil
}

// unbindNetns ends a namespace as a runtime does. Where nothing is left inside,
// the kernel destroys it some time later, and with it the pairs that reach in.
func unbindNetns(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return os.Remove(path)
}

// addUplink makes the namespace of the calling thread look like a host: an
// interface with a carrier, an address of each family, and default routes.
func addUplink() error {
	uplink := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink0", MTU: 1500}, PeerName: "cable0"}
	if err := netlink.LinkAdd(uplink); err != nil {
		return fmt.Errorf("add uplink0: %w", err)
	}
	for _, name := range []string{"lo", "cable0", "uplink0"} {
		l, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(l)
		}
		if err != nil {
			return fmt.Errorf("set %s up: %w", name, err)
		}
	}
	for _, s := range []string{"192.0.2.10/24", "2001:db8::10/64"} {
		addr, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(uplink, addr); err != nil {
			return fmt.Errorf("add %s: %w", s, err)
		}
	}
	for _, gw := range []string{"192.0.2.1", "2001:db8::1"} {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: uplink.Index, Gw: net.ParseIP(gw)}); err != nil {
			return fmt.Errorf("add default route by %s: %w", gw, err)
		}
	}
	return nil
}

// Sandbox is a pod's network namespace, bound to a path.
type Sandbox struct {
	Path string
}

// NewSandbox makes a sandbox. Its path is never used again: that is how
// runtimes name them, and what the evidence for garbage collection relies on.
func (n *Node) NewSandbox() (*Sandbox, error) {
	s := &Sandbox{Path: filepath.Join(n.Dir, fmt.Sprintf("pod-%d", n.serial.Add(1)))}
	return s, bindNetns(s.Path, nil)
}

// Delete ends the sandbox.
func (s *Sandbox) Delete() error { return unbindNetns(s.Path) }

// Addresses returns the global addresses of an interface inside, none where
// there is no such interface.
func (s *Sandbox) Addresses(ifname string) ([]string, error) {
	ns, err := kernel.OpenNetns(s.Path)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	var found []string
	err = ns.Do(func() error {
		l, err := net.InterfaceByName(ifname)
		if err != nil {
			return nil //nolint:nilerr // it is not there
		}
		addrs, err := l.Addrs()
		for _, a := range addrs {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
				found = append(found, ip.IP.String())
			}
		}
		return err
	})
	return found, err
}
