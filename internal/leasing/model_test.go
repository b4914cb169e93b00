// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/registrytest"

	"pgregory.net/rapid"
)

// model drives some nodes through everything that can happen to them, and
// holds them to the one rule: who gives addresses from a block has its lease,
// unless an outsider took the lease away and the node cannot know it yet.
type model struct {
	*world
	t       *rapid.T
	uids    int
	excused map[string]map[netip.Prefix]int // by node and block: the change that took the lease away
	faults  bool
	calm    int // calls that go well for each that does not
}

type crash struct{}

// Two nodes never give addresses from one block, whatever fails in whatever
// order; and when nothing fails any more, every node has what it needs, the
// extra blocks are back, and every lease says what is so.
func TestNodesShareNoBlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{world: newWorld(smallPool()), t: t, excused: map[string]map[netip.Prefix]int{}, faults: true}
		m.calm = rapid.IntRange(1, 20).Draw(t, "calm")
		for i := range rapid.IntRange(2, 4).Draw(t, "nodes") {
			n := m.add("node" + strconv.Itoa(i))
			m.excused[n.name] = map[netip.Prefix]int{}
			m.breakable(n)
		}
		t.Repeat(map[string]func(*rapid.T){
			"step":    func(t *rapid.T) { m.step(m.draw()) },
			"deliver": func(t *rapid.T) { m.draw().feed.Deliver(rapid.IntRange(1, 4).Draw(t, "changes")) },
			"sync": func(*rapid.T) {
				for _, n := range m.nodes {
					n.feed.Deliver(n.feed.Pending())
					m.step(n)
				}
			},
			"time": func(t *rapid.T) {
				m.pass(time.Duration(rapid.SampledFrom([]int{1, 5, 70, 700}).Draw(t, "s")) * time.Second)
			},
			"pods":    m.pods,
			"grow":    func(*rapid.T) { n := m.draw(); m.fill(n, blockSize); m.step(n) },
			"shrink":  func(*rapid.T) { n := m.draw(); m.fill(n, 0); m.pass(700 * time.Second); m.step(n) },
			"trouble": m.trouble,
			"":        func(*rapid.T) { m.check() },
		})
		m.heal()
	})
}

func (m *model) draw() *node { return rapid.SampledFrom(m.nodes).Draw(m.t, "node") }

// breakable makes the node's calls fail, and the process die between any two.
func (m *model) breakable(n *node) {
	chance := func(what string) string {
		if !m.faults {
			return ""
		}
		if rapid.IntRange(0, m.calm).Draw(m.t, what) > 0 {
			return ""
		}
		return rapid.SampledFrom([]string{"lost", "unanswered", "untried", "crash", "crash after"}).Draw(m.t, what+" goes wrong")
	}
	n.fault = func(c registrytest.Call) registrytest.Fault {
		if b := n.ipam.blocks[c.Lease.Subnet]; c.Verb == "delete" && b != nil {
			m.t.Fatalf("%s deletes the lease of %s, which has %d pods", n.name, c.Lease.Subnet, b.pods)
		}
		switch chance(c.Verb) {
		case "lost":
			return registrytest.Lost
		case "unanswered":
			return registrytest.Unanswered
		case "untried":
			if c.Verb == "create" {
				return registrytest.Untried
			}
		case "crash":
			panic(crash{})
		case "crash after":
			_ = m.registry.Client(nil).Do(m.t.Context(), c)
			panic(crash{})
		}
		return registrytest.None
	}
	n.ipam.before = func(verb string) error {
		m.check()
		switch chance(verb) {
		case "lost":
			return errDisk
		case "crash":
			panic(crash{})
		}
		return nil
	}
}

// trouble is what seldom happens.
func (m *model) trouble(t *rapid.T) {
	n := m.draw()
	switch rapid.SampledFrom([]string{"restart", "cut", "contact", "outsider", "node", "move"}).Draw(t, "trouble") {
	case "restart":
		n.start()
	case "cut":
		n.store.Unreachable(registrytest.ErrFault, m.registry.Now)
	case "contact":
		n.store.Synced(m.registry.Now)
	case "outsider":
		m.outsider(t)
	case "node":
		m.renew(t, n)
	case "move":
		n.identity.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{198, 18, 2, rapid.Byte().Draw(t, "address")})}
	}
}

func (m *model) step(n *node) {
	defer func() {
		if r := recover(); r != nil {
			if _, died := r.(crash); !died {
				panic(r)
			}
			n.start()
		}
	}()
	n.keeper.Step(m.t.Context(), m.registry.Now)
	if n.keeper.Status().Err != nil {
		return // IPAM may not have been told
	}
	for subnet, change := range m.excused[n.name] {
		if n.feed.Position() >= change {
			delete(m.excused[n.name], subnet)
		}
	}
}

func (m *model) check() {
	for _, n := range m.nodes {
		for _, subnet := range n.ipam.served() {
			l, _ := m.registry.Lease(cluster.LeaseName(subnet))
			if _, excused := m.excused[n.name][subnet]; l.Node != n.name && !excused {
				m.t.Fatalf("%s gives addresses from %s, whose lease is of %q", n.name, subnet, l.Node)
			}
		}
	}
}

// pods makes pods come and go in a block that the node serves, or go where it
// does not.
func (m *model) pods(t *rapid.T) {
	n := m.draw()
	blocks, _ := (&fakeIPAM{blocks: n.ipam.blocks}).Blocks(n.ipam.now)
	if len(blocks) == 0 {
		t.Skip("no block")
	}
	subnet := rapid.SampledFrom(blocks).Draw(t, "block").Subnet
	b := n.ipam.blocks[subnet]
	most := b.pods
	if b.served {
		most = blockSize
	}
	n.ipam.setPods(subnet, rapid.IntRange(0, most).Draw(t, "pods"))
}

// fill makes all that a node serves full, or all empty.
func (m *model) fill(n *node, pods int) {
	for subnet, b := range n.ipam.blocks {
		if b.served {
			n.ipam.setPods(subnet, pods)
		}
	}
}

// outsider deletes a lease.
func (m *model) outsider(t *rapid.T) {
	leases := m.registry.Leases()
	if len(leases) > 0 {
		m.takeAway(rapid.SampledFrom(leases).Draw(t, "lease"))
	}
}

func (m *model) takeAway(l cluster.Lease) {
	m.registry.Remove(leaseKey(l.Subnet))
	m.excused[l.Node][l.Subnet] = m.registry.Len()
}

// renew deletes a node's object with its leases, and perhaps makes it anew.
func (m *model) renew(t *rapid.T, n *node) {
	if rapid.Bool().Draw(t, "delete") {
		m.registry.Remove(registry.Key{Kind: registry.Node, Name: n.name})
		if rapid.Bool().Draw(t, "with leases") {
			for _, l := range m.registry.Leases() {
				if l.Node == n.name {
					m.takeAway(l)
				}
			}
		}
	}
	if rapid.Bool().Draw(t, "make") {
		m.uids++
		m.register(n.name, "again"+strconv.Itoa(m.uids))
	}
}

// heal ends all trouble and waits until nothing happens any more.
func (m *model) heal() {
	m.faults = false
	for _, n := range m.nodes {
		m.register(n.name, "last")
		n.store.Synced(m.registry.Now)
		for _, b := range n.ipam.blocks {
			b.pods, b.idleSince = 0, 1
		}
	}
	quiet := 0
	for range 400 {
		before := m.registry.Len()
		for _, n := range m.nodes {
			n.feed.Deliver(n.feed.Pending())
			m.step(n)
			m.check()
		}
		m.pass(30 * time.Second)
		if quiet++; m.registry.Len() > before {
			quiet = 0
		}
		if quiet > 60 { // longer than a block must be idle, and than any write is waited for
			break
		}
	}
	if quiet <= 60 {
		m.t.Fatal("the nodes never come to rest")
	}
	for _, n := range m.nodes {
		m.checkAtRest(n)
	}
}

func (m *model) checkAtRest(n *node) {
	served, held := n.ipam.served(), m.heldBy(n.name)
	s := n.keeper.Status()
	if len(served) != 2 || !served[0].Addr().Is4() || !served[1].Addr().Is6() || !slices.Equal(served, held) {
		m.t.Fatalf("%s serves %v and holds %v, want one of each family; %+v", n.name, served, held, s)
	}
	if len(s.Waiting) > 0 || s.Err != nil || len(s.Held) != 2 {
		m.t.Fatalf("%s: %+v", n.name, s)
	}
	for _, subnet := range held {
		l, _ := m.registry.Lease(cluster.LeaseName(subnet))
		if l.NodeUID != "last" || !slices.Equal(l.Addresses, n.identity.Addresses) || l.Pool != "default" {
			m.t.Fatalf("%s says %+v, the node has %+v", l.Name(), l, n.identity)
		}
	}
}
