// SPDX-License-Identifier: Apache-2.0

package wish

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"weft.dev/weft/internal/core/cluster"

	"pgregory.net/rapid"
)

// town is a registry of leases and claims, and the nodes' IPAM: small, so that
// pods meet.
type town struct {
	pools  []cluster.Pool
	leases map[string]cluster.Lease
	claims map[string]cluster.Claim
	nodes  []string
	blocks map[string][]cluster.Lease // by node
	ipam   map[string]map[netip.Addr]string
	runs   map[string]string // nodes of pods
	writes int
}

func newTown() *town {
	w := &town{
		pools:  []cluster.Pool{{Name: "default", Ranges: ranges("10.42.0.0/26/28"), Reserved: []netip.Prefix{subnet("10.42.0.4/31"), subnet("10.42.0.48/30")}}},
		leases: map[string]cluster.Lease{}, claims: map[string]cluster.Claim{}, nodes: []string{"node1", "node2"},
		blocks: map[string][]cluster.Lease{}, ipam: map[string]map[netip.Addr]string{}, runs: map[string]string{},
	}
	for i, n := range w.nodes {
		l := leaseOf(fmt.Sprintf("10.42.0.%d/28", 16*i), n, "default", "")
		w.leases[l.Name()], w.blocks[n], w.ipam[n] = l, []cluster.Lease{l}, map[netip.Addr]string{}
	}
	return w
}

// plan is what a node resolved, in the view of that moment.
type plan struct {
	node   string
	pod    cluster.Pod
	answer Answer
	avoid  func(netip.Addr) bool
}

func (w *town) resolve(node string, pod cluster.Pod, asked Wish) (plan, error) {
	v := View{
		Node: node, Pod: pod, Pools: w.pools, Served: w.blocks[node], Leases: maps.Clone(w.leases), Claims: maps.Clone(w.claims),
	}
	a, err := Resolve(asked, v, func(cluster.Lease) uint64 { return 1 })
	return plan{node, pod, a, HoldersOf(v.Claims, v.Leases).Avoid(pod.Key(), a.Addresses)}, err
}

// apply does what a node does with a plan, as far as it succeeds.
func (w *town) apply(p plan) (started bool) {
	key, ipam := p.pod.Key(), w.ipam[p.node]
	if w.runs[key] != "" {
		return false
	}
	addrs, single := p.answer.Addresses, map[netip.Addr]bool{}
	for _, a := range addrs {
		single[a] = !slices.ContainsFunc(p.answer.Blocks, func(l cluster.Lease) bool { return l.Subnet.Contains(a) })
	}
	if len(addrs) == 0 {
		a, ok := w.any(p)
		if !ok {
			return false
		}
		addrs = []netip.Addr{a}
	}
	for _, a := range addrs {
		if owner, used := ipam[a]; used && owner != key || !single[a] && p.avoid(a) {
			return false
		}
	}
	for _, l := range p.answer.Lease {
		if _, there := w.leases[l.Name()]; there {
			return false
		}
		w.write(l, p.node)
	}
	for _, l := range p.answer.TakeOver {
		if w.leases[l.Name()].Version != l.Version {
			return false
		}
		w.write(l, p.node)
	}
	for _, a := range addrs {
		// A lease that was there already may have been lost meanwhile.
		l, there := w.leases[cluster.LeaseName(netip.PrefixFrom(a, a.BitLen()))]
		if single[a] && (!there || l.Pod != key || l.Node != p.node) {
			return false
		}
	}
	for _, l := range p.answer.Drop {
		if w.leases[l.Name()].UID == l.UID {
			delete(w.leases, l.Name())
		}
	}
	for _, a := range addrs {
		ipam[a] = key
	}
	if p.answer.Keep {
		w.claims[key] = cluster.Claim{Namespace: p.pod.Namespace, Name: p.pod.Name, Addresses: addrs}
	}
	w.runs[key] = p.node
	return true
}

// any returns a free address out of the plan's blocks, as IPAM does.
func (w *town) any(p plan) (netip.Addr, bool) {
	for _, l := range p.answer.Blocks {
		for a := l.Subnet.Addr(); l.Subnet.Contains(a); a = a.Next() {
			_, used := w.ipam[p.node][a]
			reserved := slices.ContainsFunc(w.pools[0].Reserved, func(q netip.Prefix) bool { return q.Contains(a) })
			if !used && !reserved && usable(l.Subnet, a) && !p.avoid(a) {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

func (w *town) write(l cluster.Lease, node string) {
	w.writes++
	if l.UID == "" {
		l.UID = fmt.Sprint("uid", w.writes)
	}
	l.Node, l.Version = node, fmt.Sprint(w.writes)
	w.leases[l.Name()] = l
}

// stop ends a pod. Its node may give leases back, or be too late for that.
func (w *town) stop(key string, giveBack bool) {
	node := w.runs[key]
	delete(w.runs, key)
	maps.DeleteFunc(w.ipam[node], func(_ netip.Addr, owner string) bool { return owner == key })
	maps.DeleteFunc(w.leases, func(_ string, l cluster.Lease) bool { return giveBack && l.Pod == key && l.Node == node })
}

// holders returns who runs with each address; an error if two do, or if the
// routes lead to another node.
func (w *town) check() error {
	has := map[netip.Addr]string{}
	for _, node := range w.nodes {
		for a, key := range w.ipam[node] {
			if other, twice := has[a]; twice && other != key {
				return fmt.Errorf("%s is the address of %s and of %s", a, key, other)
			}
			has[a] = key
			if c := w.claims[key]; len(c.Addresses) > 0 && w.runs[key] != node {
				return fmt.Errorf("%s runs on %s and has %s on %s", key, w.runs[key], a, node)
			}
			if to := w.route(a); to != node {
				return fmt.Errorf("%s of %s is on %s, and the route leads to %q", a, key, node, to)
			}
		}
	}
	return nil
}

// route returns the node that packets to the address are sent to.
func (w *town) route(a netip.Addr) string {
	if l, there := w.leases[cluster.LeaseName(netip.PrefixFrom(a, a.BitLen()))]; there {
		return l.Node
	}
	for _, node := range w.nodes {
		if w.blocks[node][0].Subnet.Contains(a) {
			return node
		}
	}
	return ""
}

// Two nodes resolve at the same time, for two pods, and carry it out in either
// order: an address never has two pods, and packets to it arrive.
func TestNoAddressHasTwoPods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newTown()
		draw := func(label, node string) (p plan, ok bool) {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, label)
			pod := cluster.Pod{Namespace: "prod", Name: name, Controller: cluster.Owner{Kind: "StatefulSet", Name: "db"}}
			if w.runs[pod.Key()] != "" {
				return p, false
			}
			asked := Wish{Sticky: rapid.Bool().Draw(t, "sticky")}
			if rapid.Bool().Draw(t, "fixed") {
				last := rapid.SampledFrom([]byte{0, 1, 2, 3, 4, 5, 18, 19, 49, 50, 51, 70}).Draw(t, "address")
				asked.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 42, 0, last})}
			}
			p, err := w.resolve(node, pod, asked)
			return p, err == nil
		}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			if running := slices.Sorted(maps.Keys(w.runs)); len(running) > 0 && rapid.IntRange(0, 2).Draw(t, "stop") == 0 {
				w.stop(rapid.SampledFrom(running).Draw(t, "who"), rapid.Bool().Draw(t, "gives back"))
				continue
			}
			first, ok1 := draw("first", "node1")
			second, ok2 := draw("second", "node2")
			plans := []plan{first, second}
			if rapid.Bool().Draw(t, "the other first") {
				slices.Reverse(plans)
			}
			for _, p := range plans {
				if (p.node == "node1" && ok1) || (p.node == "node2" && ok2) {
					w.apply(p)
				}
				if err := w.check(); err != nil {
					t.Fatalf("after %+v: %v", p, err)
				}
			}
		}
	})
}
