// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Netns is a network namespace that is bound to a path, as a runtime does it,
// with a netlink handle into it.
type Netns struct {
	Path string
	*netlink.Handle

	fd   netns.NsHandle
	gone bool
}

// newNetns creates a namespace with the loopback interface up.
func newNetns(path string) (*Netns, error) {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return nil, err
	}
	err := onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %s: %w", path, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	n := &Netns{Path: path}
	if n.fd, err = netns.GetFromPath(path); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if n.Handle, err = netlink.NewHandleAt(n.fd, unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("netlink in %s: %w", path, err)
	}
	lo, err := n.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	return n, n.LinkSetUp(lo)
}

// newHost creates a namespace that looks like a node: an uplink with an
// address of each family and the default routes.
func newHost(path string) (*Netns, error) {
	n, err := newNetns(path)
	if err != nil {
		return nil, err
	}
	if err := addUplink(n); err != nil {
		n.Delete()
		return nil, err
	}
	return n, nil
}

// addUplink makes one end of a veth pair the uplink; the other end plays the
// cable, so that there is a carrier.
func addUplink(n *Netns) error {
	uplink := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink0", MTU: 1500}, PeerName: "cable0"}
	if err := n.LinkAdd(uplink); err != nil {
		return fmt.Errorf("add uplink0: %w", err)
	}
	cable, err := n.LinkByName("cable0")
	if err != nil {
		return err
	}
	// Addresses that the kernel adds some time later would look like the
	// plugin's work.
	for _, name := range []string{"uplink0", "cable0"} {
		if err := n.setSysctl("net/ipv6/conf/"+name+"/addr_gen_mode", "1"); err != nil {
			return err
		}
	}
	if err := n.LinkSetUp(cable); err != nil {
		return err
	}
	for _, s := range []string{"192.0.2.10/24", "2001:db8::10/64"} {
		addr, err := netlink.ParseAddr(s)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := n.AddrAdd(uplink, addr); err != nil {
			return fmt.Errorf("add %s: %w", s, err)
		}
	}
	if err := n.LinkSetUp(uplink); err != nil {
		return err
	}
	for _, gw := range []string{"192.0.2.1", "2001:db8::1"} {
		if err := n.RouteAdd(&netlink.Route{LinkIndex: uplink.Index, Gw: net.ParseIP(gw)}); err != nil {
			return fmt.Errorf("add default route by %s: %w", gw, err)
		}
	}
	return settled(n)
}

// settled waits until the kernel has finished what it does by itself when a
// carrier comes up; the local route of the IPv6 address is the last of it.
func settled(n *Netns) error {
	local := func() bool {
		all, err := allRoutes(n, netlink.FAMILY_V6)
		return err == nil && slices.ContainsFunc(all, func(r netlink.Route) bool {
			return r.Type == unix.RTN_LOCAL && r.Dst != nil && r.Dst.IP.String() == "2001:db8::10"
		})
	}
	if !until(callLimit, local) {
		return errors.New("the uplink's IPv6 address did not become usable")
	}
	return nil
}

// Delete ends the namespace as a runtime ends it. Where no process is left
// inside, the kernel then destroys it, asynchronously.
func (n *Netns) Delete() {
	if n.gone {
		return
	}
	n.gone = true
	n.Close()
	n.fd.Close()
	_ = unix.Unmount(n.Path, unix.MNT_DETACH)
	_ = os.Remove(n.Path)
}

// Do runs f on a thread inside the namespace. Sockets that f opens belong to
// the namespace, and so do the processes that it starts.
func (n *Netns) Do(f func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(n.fd); err != nil {
			return fmt.Errorf("enter %s: %w", n.Path, err)
		}
		return f()
	})
}

// onOwnThread runs f on a thread that is thrown away afterwards, which is the
// one way to be sure that a changed namespace never leaks to other code.
func onOwnThread(f func() error) error {
	err := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		failed := true
		defer func() {
			if failed {
				err <- fmt.Errorf("ended early")
			}
		}()
		e := f()
		failed = false
		err <- e
	}()
	return <-err
}
