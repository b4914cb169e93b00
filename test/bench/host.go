// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// ifname is the interface that every sandbox gets, as in Kubernetes.
const ifname = "eth0"

// sandbox is a network namespace bound to a path, as a runtime makes it, with a
// netlink socket inside.
type sandbox struct {
	Path   string
	ns     netns.NsHandle
	inside *netlink.Handle
}

// newSandboxes makes namespaces under dir.
func newSandboxes(dir string, count int) ([]*sandbox, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	sandboxes := make([]*sandbox, count)
	for i := range sandboxes {
		s, err := newSandbox(filepath.Join(dir, fmt.Sprintf("pod-%d", i)))
		if err != nil {
			return nil, fmt.Errorf("make sandbox %d: %w", i, err)
		}
		sandboxes[i] = s
	}
	return sandboxes, nil
}

func newSandbox(path string) (*sandbox, error) {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return nil, err
	}
	if err := bindNewNetns(path); err != nil {
		return nil, err
	}
	s := &sandbox{Path: path}
	var err error
	if s.ns, err = netns.GetFromPath(path); err != nil {
		return nil, err
	}
	if s.inside, err = netlink.NewHandleAt(s.ns, unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	return s, setUp(s.inside, "lo")
}

// bindNewNetns works on a thread that it throws away, so that a changed
// namespace cannot reach other code.
func bindNewNetns(path string) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		done <- err
	}()
	return <-done
}

// attached reports whether the sandbox has its interface.
func (s *sandbox) attached() (bool, error) {
	_, err := s.inside.LinkByName(ifname)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return false, nil
	}
	return err == nil, err
}

func setUp(h *netlink.Handle, name string) error {
	l, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	return h.LinkSetUp(l)
}

// underlayAddr is a node's address on its uplink, and the router's.
type underlayAddr struct{ addr, router string }

var (
	underlay4 = underlayAddr{"192.0.2.10/24", "192.0.2.1"}
	underlay6 = underlayAddr{"2001:db8::10/64", "2001:db8::1"}
)

// addUplink gives a node a way out: MTU detection, masquerading and the overlay
// look for it. The other end of the pair plays the cable, so that there is a
// carrier.
func addUplink(h *netlink.Handle, addrs ...underlayAddr) error {
	uplink := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "uplink0", MTU: 1500}, PeerName: "cable0"}
	if err := h.LinkAdd(uplink); err != nil {
		return fmt.Errorf("add uplink0: %w", err)
	}
	if err := errors.Join(setUp(h, "lo"), setUp(h, "cable0"), setUp(h, "uplink0")); err != nil {
		return err
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a.addr)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := h.AddrAdd(uplink, addr); err != nil {
			return fmt.Errorf("add %s: %w", addr, err)
		}
		if err := h.RouteAdd(&netlink.Route{LinkIndex: uplink.Index, Gw: net.ParseIP(a.router)}); err != nil {
			return fmt.Errorf("add default route via %s: %w", a.router, err)
		}
	}
	return nil
}

// await polls until cond holds. The pause is short beside what is measured
// with it (the 20 ms of an interface's removal) and long enough to leave the
// processors to it.
func await(limit time.Duration, what string, cond func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for {
		ok, err := cond()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", what, err)
		case ok:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s: not within %s", what, limit)
		}
		time.Sleep(pollEvery)
	}
}

const pollEvery = 200 * time.Microsecond
