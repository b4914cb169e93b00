// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
)

// View is everything on a node that Weft could have left there, one line for
// each thing, sorted. Two equal views mean that nothing was left behind and
// nothing was lost.
type View []string

// View observes the node: links, routes of Weft's protocol, nftables, the files
// in the state directory, the records and the addresses they hold.
func (n *Node) View() (View, error) {
	var v View
	err := n.Do(func() error {
		for _, observe := range []func() (View, error){links, hostRoutes, steady(tables), steady(mappings)} {
			lines, err := observe()
			if err != nil {
				return err
			}
			v = append(v, lines...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, observe := range []func() (View, error){n.files, n.records} {
		lines, err := observe()
		if err != nil {
			return nil, err
		}
		v = append(v, lines...)
	}
	slices.Sort(v)
	return v, nil
}

// Compare returns what is new and what is gone, "" if nothing.
func (v View) Compare(later View) string {
	var b strings.Builder
	for _, line := range v {
		if !slices.Contains(later, line) {
			fmt.Fprintf(&b, "\n  gone: %s", line)
		}
	}
	for _, line := range later {
		if !slices.Contains(v, line) {
			fmt.Fprintf(&b, "\n  left: %s", line)
		}
	}
	return b.String()
}

// repeated retries a dump that the kernel interrupted because something
// changed meanwhile (NLM_F_DUMP_INTR).
func repeated[T any](list func() (T, error)) (T, error) {
	for {
		v, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return v, err
		}
	}
}

func links() (View, error) {
	all, err := repeated(netlink.LinkList)
	var v View
	for _, l := range all {
		v = append(v, fmt.Sprintf("link %s %s alias %q", l.Attrs().Name, l.Type(), l.Attrs().Alias))
	}
	return v, err
}

func routes(family int) ([]netlink.Route, error) {
	return repeated(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Protocol: kernel.RouteProtocol, Table: unix.RT_TABLE_UNSPEC},
			netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	})
}

func hostRoutes() (View, error) {
	var v View
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := routes(family)
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			v = append(v, fmt.Sprintf("route %s table %d type %d", r.Dst, r.Table, r.Type))
		}
	}
	return v, nil
}

// HostRoutes returns the addresses that the host leads to interfaces of pods,
// each with the interface's name. An address that is led to two interfaces is
// an error.
func (n *Node) HostRoutes() (map[netip.Addr]string, error) {
	led := make(map[netip.Addr]string)
	err := n.Do(func() error {
		all, err := repeated(netlink.LinkList)
		if err != nil {
			return err
		}
		names := make(map[int]string, len(all))
		for _, l := range all {
			names[l.Attrs().Index] = l.Attrs().Name
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			found, err := routes(family)
			if err != nil {
				return err
			}
			for _, r := range found {
				if r.Type != unix.RTN_UNICAST || r.Dst == nil {
					continue
				}
				a, _ := netip.AddrFromSlice(r.Dst.IP)
				a = a.Unmap()
				// A dump of IPv6 routes that change meanwhile may also tell one
				// twice.
				if other, twice := led[a]; twice && other != names[r.LinkIndex] {
					return fmt.Errorf("address %s is led to %s and to %s", a, other, names[r.LinkIndex])
				}
				// "" where the link was made after the links were listed.
				led[a] = names[r.LinkIndex]
			}
		}
		return nil
	})
	return led, err
}

// LedTo asks the host where it would send a packet to an address: the name of
// the interface, "" for nowhere. Unlike a dump of IPv6 routes, from which the
// kernel may leave out some when others go meanwhile, without saying so
// (seen with Linux 6.18), the answer is exact.
func (n *Node) LedTo(a netip.Addr) string {
	name := ""
	err := n.Do(func() error {
		found, err := netlink.RouteGet(a.AsSlice())
		if err != nil || len(found) == 0 {
			return err
		}
		l, err := netlink.LinkByIndex(found[0].LinkIndex)
		if err == nil {
			name = l.Attrs().Name
		}
		return err
	})
	if err != nil {
		return ""
	}
	return name
}

// steady repeats a look at nftables from which something went away meanwhile:
// an agent deletes its table with the last port. The library gives that as text
// only.
func steady(list func() (View, error)) func() (View, error) {
	const most = 100
	return func() (v View, err error) {
		for range most {
			if v, err = list(); err == nil || !strings.HasSuffix(err.Error(), unix.ENOENT.Error()) {
				break
			}
		}
		return v, err
	}
}

func tables() (View, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	all, err := c.ListTables()
	if err != nil {
		return nil, err
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil, err
	}
	var v View
	for _, t := range all {
		v = append(v, fmt.Sprintf("nft table %d %s", t.Family, t.Name))
	}
	for _, chain := range chains {
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return nil, err
		}
		v = append(v, fmt.Sprintf("nft chain %s %s with %d rules", chain.Table.Name, chain.Name, len(rules)))
	}
	return v, nil
}

// mappings lists what ports of the host lead to.
func mappings() (View, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	all, err := c.ListTables()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(t *nftables.Table) bool { return t.Name == kernel.HostPortTable })
	if i < 0 {
		return nil, nil
	}
	sets, err := c.GetSets(all[i])
	if err != nil {
		return nil, err
	}
	var v View
	for _, set := range sets {
		elements, err := c.GetSetElements(set)
		if err != nil {
			return nil, err
		}
		for _, e := range elements {
			v = append(v, fmt.Sprintf("nft element of %s: %x to %x", set.Name, e.Key, e.Val))
		}
	}
	return v, nil
}

// files lists the state directory. The stamp and the diary of garbage
// collection appear at some time and stay.
func (n *Node) files() (View, error) {
	entries, err := os.ReadDir(n.StateDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var v View
	for _, e := range entries {
		if name := e.Name(); name != "swept" && !strings.HasPrefix(name, "collected") {
			v = append(v, "file "+name)
		}
	}
	return v, err
}

// Facts reads the journal without a lock.
func (n *Node) Facts() (*facts.Facts, error) { return journal.Read(n.StateDir, facts.New) }

// Record returns one record from the journal.
func (n *Node) Record(k attach.Key) (facts.Record, bool, error) {
	f, err := n.Facts()
	if err != nil {
		return facts.Record{}, false, err
	}
	rec, found := f.Get(k)
	return rec, found, nil
}

func (n *Node) records() (View, error) {
	f, err := n.Facts()
	if err != nil {
		return nil, err
	}
	var v View
	for _, rec := range f.Records() {
		v = append(v, fmt.Sprintf("record %s %s %s %v", rec.Key, rec.Kind, rec.Phase, rec.Addresses))
	}
	return v, nil
}
