// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/kernel/nstest"
)

// installed is a node in a namespace and a directory of its own, with all that
// Weft makes but pods, and some things beside it that are not Weft's.
type installed struct {
	Node
	ns *nstest.NS
}

var podKey = attach.Key{Network: "weft", ContainerID: "c1", Ifname: "eth0"}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func newInstalled(t *testing.T) installed {
	nstest.Need(t, "veth", "vxlan", "ifb", "inet nat", "ipv6")
	root := t.TempDir()
	n := installed{ns: nstest.New(t), Node: Node{
		StateDir: filepath.Join(root, "run/weft"), ConfFile: filepath.Join(root, "net.d/10-weft.conflist"), BinDir: filepath.Join(root, "bin"),
	}}
	from := filepath.Join(root, "weft-cni")
	write(t, from, "plugin", 0o755)
	must(t, Binaries(n.BinDir, from, quiet))
	_, err := WriteConflist(n.ConfFile, []byte(`{"name":"weft","plugins":[{"type":"weft-cni"}]}`))
	must(t, err)
	store, err := journal.Own(context.Background(), n.StateDir, facts.New)
	must(t, err, store.Close())
	write(t, filepath.Join(n.StateDir, "collected"), "", 0o600)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: n.socket()})
	must(t, err)
	listener.SetUnlinkOnClose(false) // as after a SIGKILL
	must(t, listener.Close())
	n.ns.Do(func() { makeObjects(t) })
	return n
}

func makeObjects(t *testing.T) {
	for _, l := range []struct {
		link  netlink.Link
		alias string
	}{
		{&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: topology.VXLANDevice4}, VxlanId: 119, Port: 4789, SrcAddr: net.IPv4(127, 0, 0, 1)}, "weft /run/weft overlay"},
		{&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: topology.VXLANDevice6}, VxlanId: 119, Port: 4790}, ""},
		{&netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "vxlan7"}, VxlanId: 7, Port: 4791}, ""},
		{&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: attach.Shaper(podKey.HostIfname())}}, ""},
		{&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "wshp"}}, "weft /run/weft weft/c0/eth0"},
		{&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "ifb9"}}, "wefty"},
	} {
		if err := netlink.LinkAdd(l.link); err != nil {
			t.Fatalf("add link %s: %v", l.link.Attrs().Name, err)
		}
		if l.alias != "" {
			must(t, netlink.LinkSetAlias(l.link, l.alias))
		}
		must(t, netlink.LinkSetUp(l.link))
	}
	// The table as the product makes it.
	k, err := kernel.Open()
	must(t, err)
	defer k.Close()
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	uplink, err := netlink.LinkByName("vxlan7")
	must(t, err)
	a, err := netlink.ParseAddr("192.0.2.1/24")
	must(t, err, netlink.AddrAdd(uplink, a))
	for _, r := range []netlink.Route{
		{Dst: prefix(t, "10.42.0.0/24"), Type: unix.RTN_UNREACHABLE, Protocol: kernel.RouteProtocol},
		{Dst: prefix(t, "fd00:42::/64"), Type: unix.RTN_UNREACHABLE, Protocol: kernel.RouteProtocol},
		{Dst: prefix(t, "10.42.1.0/24"), Gw: net.ParseIP("192.0.2.9"), LinkIndex: uplink.Attrs().Index, Flags: int(netlink.FLAG_ONLINK), Protocol: kernel.RouteProtocol},
		{Dst: prefix(t, "10.42.0.1/32"), LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Table: unix.RT_TABLE_LOCAL, Protocol: kernel.RouteProtocol},
		{Dst: prefix(t, "fd00:42::1/128"), LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Protocol: kernel.RouteProtocol},
		{Dst: prefix(t, "10.99.0.0/24"), Type: unix.RTN_UNREACHABLE, Protocol: unix.RTPROT_STATIC},
	} {
		if err := netlink.RouteAdd(&r); err != nil {
			t.Fatalf("add route %s: %v", r.Dst, err)
		}
	}
	must(t, k.EnsureNode(kernel.Node{Table: "weft", Sources: prefixes("10.42.0.0/24"), Pools: prefixes("10.42.0.0/16")}))
	c, err := nftables.New()
	must(t, err)
	for _, name := range []string{"weft.thin", "weft-hostport", "weftless", "filter"} {
		c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
	}
	must(t, c.Flush())
}

func prefix(t *testing.T, s string) *net.IPNet {
	t.Helper()
	_, n, err := net.ParseCIDR(s)
	must(t, err)
	return n
}

func prefixes(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }

// addPod adds the pair of a pod, whose sandbox is a second namespace.
func (n installed) addPod(t *testing.T) {
	t.Helper()
	sandbox := nstest.New(t)
	n.ns.Do(func() {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: podKey.HostIfname()}, PeerName: "eth0", PeerNamespace: netlink.NsFd(sandbox.FD())}
		must(t, netlink.LinkAdd(pair), netlink.LinkSetAlias(pair, attach.Alias(n.StateDir, podKey, attach.Pod{Namespace: "default", Name: "web-0"})))
	})
}

func (n installed) uninstall(t *testing.T, o Options) (rows []string, err error) {
	t.Helper()
	n.ns.Do(func() {
		var outcomes []Outcome
		outcomes, err = n.Uninstall(context.Background(), o, quiet)
		for _, o := range outcomes {
			object := strings.ReplaceAll(o.Object, filepath.Dir(n.BinDir), "")
			rows = append(rows, strings.TrimSpace(object+" "+o.State+" "+o.Reason))
		}
	})
	return rows, err
}

// objects lists what is in the kernel, Weft's or not.
func (n installed) objects(t *testing.T) (list []string) {
	t.Helper()
	n.ns.Do(func() {
		links, err := netlink.LinkList()
		must(t, err)
		for _, l := range links {
			list = append(list, "link "+l.Attrs().Name)
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			routes, err := netlink.RouteListFiltered(family, &netlink.Route{}, netlink.RT_FILTER_TABLE)
			must(t, err)
			for _, r := range routes {
				if r.Protocol == kernel.RouteProtocol || r.Protocol == unix.RTPROT_STATIC {
					list = append(list, "route "+r.Dst.String())
				}
			}
		}
		c, err := nftables.New()
		must(t, err)
		tables, err := c.ListTables()
		must(t, err)
		for _, table := range tables {
			list = append(list, "table "+table.Name)
		}
	})
	slices.Sort(list)
	return list
}

var foreignObjects = []string{"link ifb9", "link lo", "link vxlan7", "route 10.99.0.0/24", "table filter", "table weftless"}

func TestUninstall(t *testing.T) {
	n := newInstalled(t)
	rows, err := n.uninstall(t, Options{})
	must(t, err)
	want := []string{
		"network configuration /net.d/10-weft.conflist removed",
		"route 10.42.0.0/24 removed", "route 10.42.1.0/24 via 192.0.2.9 removed", "route 10.42.0.1/32 table local removed",
		"route fd00:42::/64 removed", "route fd00:42::1/128 table local removed",
		"link weft-vxlan (vxlan) removed", "link weft-vxlan6 (vxlan) removed", "link " + attach.Shaper(podKey.HostIfname()) + " (ifb) removed", "link wshp (ifb) removed",
		"nftables table inet weft removed", "nftables table inet weft.thin removed", "nftables table inet weft-hostport removed",
		"state directory /run/weft removed",
		"plugin /bin/weft-ipam removed", "plugin /bin/weft-cni removed",
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(foreignObjects, n.objects(t)); diff != "" {
		t.Errorf("left in the kernel (-want +got):\n%s", diff)
	}
	for _, dir := range []string{n.BinDir, filepath.Dir(n.ConfFile), filepath.Dir(n.StateDir)} {
		if got := names(t, dir); len(got) > 0 {
			t.Errorf("left in %s: %v", dir, got)
		}
	}
	if rows, err := n.uninstall(t, Options{}); err != nil || len(rows) > 0 {
		t.Errorf("the second time: %v, %v; want nothing", rows, err)
	}
}

func TestUninstallNothing(t *testing.T) {
	ns := nstest.New(t)
	n := installed{ns: ns, Node: Node{StateDir: "/nonexistent/weft", ConfFile: "/nonexistent/a.conflist", BinDir: "/nonexistent/bin"}}
	if rows, err := n.uninstall(t, Options{Force: true}); err != nil || len(rows) > 0 {
		t.Errorf("%v, %v; want nothing", rows, err)
	}
}

// Pods that are there need configuration and plugin to terminate.
func TestUninstallWithLivingPod(t *testing.T) {
	n := newInstalled(t)
	n.addPod(t)
	before := n.objects(t)
	rows, err := n.uninstall(t, Options{Wait: time.Millisecond})
	var living *LivingError
	if !errors.As(err, &living) || len(rows) > 0 || !slices.Equal(living.Attachments, []string{"default/web-0 " + podKey.HostIfname()}) {
		t.Fatalf("%v, %v; want a LivingError that names the pod", rows, err)
	}
	if diff := cmp.Diff(before, n.objects(t)); diff != "" {
		t.Errorf("kernel objects changed:\n%s", diff)
	}
	for _, path := range []string{n.ConfFile, filepath.Join(n.BinDir, "weft-cni"), n.StateDir} {
		if !exists(path) {
			t.Errorf("%s was removed", path)
		}
	}
	rows, err = n.uninstall(t, Options{Force: true})
	must(t, err)
	if want := "interface of default/web-0 " + podKey.HostIfname() + " removed by force"; !slices.Contains(rows, want) {
		t.Errorf("outcomes %q, want among them %q", rows, want)
	}
	if diff := cmp.Diff(foreignObjects, n.objects(t)); diff != "" {
		t.Errorf("left in the kernel (-want +got):\n%s", diff)
	}
}

// The wait ends as soon as the agent has stopped and the last pod is gone.
func TestUninstallWaits(t *testing.T) {
	n := newInstalled(t)
	n.addPod(t)
	store, err := journal.Own(context.Background(), n.StateDir, facts.New)
	must(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := n.uninstall(t, Options{Wait: time.Minute})
		done <- err
	}()
	must(t, store.Close())
	n.ns.Do(func() {
		link, err := netlink.LinkByName(podKey.HostIfname())
		must(t, err, netlink.LinkDel(link))
	})
	must(t, <-done)
	if diff := cmp.Diff(foreignObjects, n.objects(t)); diff != "" {
		t.Errorf("left in the kernel (-want +got):\n%s", diff)
	}
}

func TestUninstallBesideAgent(t *testing.T) {
	n := newInstalled(t)
	store, err := journal.Own(context.Background(), n.StateDir, facts.New)
	must(t, err)
	defer store.Close()
	rows, err := n.uninstall(t, Options{Force: true})
	var agent *AgentError
	if !errors.As(err, &agent) || agent.PID != os.Getpid() || len(rows) > 0 || !exists(n.ConfFile) {
		t.Errorf("%v, %v; want an AgentError, and nothing removed", rows, err)
	}
}

// An address that another plugin holds through weft-ipam needs the plugin as
// long as its sandbox is there, and no longer.
func TestUninstallWithReservation(t *testing.T) {
	n := newInstalled(t)
	path := filepath.Join(t.TempDir(), "netns")
	must(t, os.Symlink(nstest.New(t).Path, path))
	id, err := kernel.StatNetns(path)
	must(t, err)
	store, err := journal.Own(context.Background(), n.StateDir, facts.New)
	must(t, err)
	must(t, store.Update(context.Background(), func(*facts.Facts) ([]string, error) {
		entry, err := facts.EncodeIntent(1, podKey, facts.IPAM, []netip.Addr{netip.MustParseAddr("10.42.0.9")},
			facts.Detail{Netns: path, NetnsID: facts.NetnsID(id)})
		if err != nil {
			return nil, err
		}
		complete, err := facts.EncodeComplete(2, podKey)
		return []string{entry, complete}, err
	}), store.Close())
	_, err = n.uninstall(t, Options{})
	var living *LivingError
	if !errors.As(err, &living) || !strings.Contains(err.Error(), "10.42.0.9") {
		t.Fatalf("%v; want a LivingError that names the address", err)
	}
	must(t, os.Remove(path))
	_, err = n.uninstall(t, Options{})
	must(t, err)
}

func TestUninstallKeepsWhatOthersNeed(t *testing.T) {
	n := newInstalled(t)
	write(t, filepath.Join(filepath.Dir(n.ConfFile), "20-thin.conflist"), `{"name":"thin","plugins":[{"type":"weft-cni"}]}`, 0o644)
	write(t, filepath.Join(n.StateDir, "notes"), "", 0o600)
	write(t, filepath.Join(n.BinDir, "bridge"), "", 0o755)
	rows, err := n.uninstall(t, Options{})
	must(t, err)
	for _, want := range []string{
		"state directory /run/weft kept it has files that Weft did not make: [notes]",
		"plugin /bin/weft-cni kept executed by 20-thin.conflist in " + filepath.Dir(n.ConfFile) + "; remove that and uninstall again",
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("outcomes %q, want among them %q", rows, want)
		}
	}
	if diff := cmp.Diff([]string{"bridge", "weft-cni", "weft-ipam"}, names(t, n.BinDir)); diff != "" {
		t.Errorf("plugins (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"notes"}, names(t, n.StateDir)); diff != "" {
		t.Errorf("state directory (-want +got):\n%s", diff)
	}
}
