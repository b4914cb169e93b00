// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Ways between pods on different nodes.
const (
	native = "native" // node1 to node3, on one segment
	vxlan  = "vxlan"  // node1 to node2, through the router
)

// wiring is three nodes on two segments with a pod each, made by Weft or by
// hand. node1 is the one that sends.
type wiring struct {
	name    string
	overlay string            // VXLAN device of a node
	client  string            // network namespace of node1's pod
	servers map[string]server // by the way that leads to them
	nodes   []string          // network namespaces
	node1   *netlink.Handle
}

// server is a pod that answers.
type server struct {
	netns string
	addr  netip.Addr
}

// labName is the lab's, in a /run of its own.
const labName = "bench"

// weftWiring is what the lab makes, with real agents.
func weftWiring(ctx context.Context, p places) (*wiring, error) {
	lab := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(p.Weft, "weft"), append([]string{"lab", "--name", labName}, args...)...)
		return output(cmd)
	}
	if _, err := lab("up", "--nodes", "3", "--segments", "2", "--family", "ipv4"); err != nil {
		return nil, err
	}
	for _, n := range []string{"1", "2", "3"} {
		if _, err := lab("pod", "add", "pod"+n, "--node", "node"+n); err != nil {
			return nil, err
		}
	}
	raw, err := lab("pod", "list", "-o", "json")
	if err != nil {
		return nil, err
	}
	var pods []struct {
		Name      string
		Addresses []netip.Prefix
	}
	if err := json.Unmarshal(raw, &pods); err != nil {
		return nil, fmt.Errorf("read the lab's pods: %w", err)
	}
	addrs := map[string]netip.Addr{}
	for _, p := range pods {
		if len(p.Addresses) == 1 {
			addrs[p.Name] = p.Addresses[0].Addr()
		}
	}
	return newWiring("weft", "weft-vxlan", filepath.Join("/run/weft-lab", labName, "netns"), addrs["pod2"], addrs["pod3"])
}

//go:embed handmade.sh
var handmadeScript string

// handmadeWiring is the same made with ip, with pods of the same MTU.
func handmadeWiring(ctx context.Context, mtu int) (*wiring, error) {
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", handmadeScript)
	cmd.Env = append(os.Environ(), "MTU="+strconv.Itoa(mtu))
	if _, err := output(cmd); err != nil {
		return nil, err
	}
	return newWiring("handmade", "vxlan0", "/run/netns/hand-", netip.MustParseAddr("10.42.2.2"), netip.MustParseAddr("10.42.3.2"))
}

// newWiring takes the part of the namespaces' paths before the names.
func newWiring(name, overlay, prefix string, pod2, pod3 netip.Addr) (*wiring, error) {
	if !strings.HasSuffix(prefix, "-") {
		prefix += "/"
	}
	w := &wiring{
		name: name, overlay: overlay, client: prefix + "pod1",
		servers: map[string]server{vxlan: {prefix + "pod2", pod2}, native: {prefix + "pod3", pod3}},
		nodes:   []string{prefix + "node1", prefix + "node2", prefix + "node3"},
	}
	var err error
	w.node1, err = netlinkAt(w.nodes[0])
	return w, err
}

// netlinkAt opens a socket in the network namespace of that path.
func netlinkAt(path string) (*netlink.Handle, error) {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	return h, errors.Join(err, ns.Close())
}

// mtu returns that of the pod which sends.
func (w *wiring) mtu() (int, error) {
	h, err := netlinkAt(w.client)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	l, err := h.LinkByName(ifname)
	if err != nil {
		return 0, err
	}
	return l.Attrs().MTU, nil
}

// sent is what node1 has sent, in bytes.
type sent struct{ uplink, overlay uint64 }

func (w *wiring) sent() (s sent, err error) {
	for dev, into := range map[string]*uint64{"uplink0": &s.uplink, w.overlay: &s.overlay} {
		l, err := w.node1.LinkByName(dev)
		if err != nil {
			return s, fmt.Errorf("%s: node1: %s: %w", w.name, dev, err)
		}
		*into = l.Attrs().Statistics.TxBytes
	}
	return s, nil
}

// tracked returns how many connections the nodes' connection tracking knows.
func (w *wiring) tracked(ctx context.Context) (total int, err error) {
	const file = "/proc/sys/net/netfilter/nf_conntrack_count"
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
		return 0, nil // this kernel has not loaded it
	}
	for _, node := range w.nodes {
		out, err := output(exec.CommandContext(ctx, "nsenter", "--net="+node, "cat", file))
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		total += n
	}
	return total, nil
}

// output runs a command; what it says goes into the error.
func output(cmd *exec.Cmd) ([]byte, error) {
	out, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			return out, fmt.Errorf("%s: %w: %s%s", filepath.Base(cmd.Path), err, out, failed.Stderr)
		}
		return out, fmt.Errorf("%s: %w", filepath.Base(cmd.Path), err)
	}
	return out, nil
}
