// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"weft.dev/weft/internal/core/cluster"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawPrefix draws a prefix inside of one.
func drawPrefix(t *rapid.T, in netip.Prefix, minBits, maxBits int, label string) netip.Prefix {
	bits := rapid.IntRange(minBits, maxBits).Draw(t, label+" bits")
	g := newGrid(cluster.PoolRange{CIDR: in, BlockBits: bits})
	return g.block(rapid.Uint64Range(0, g.blocks()-1).Draw(t, label))
}

var spaces = [][]cluster.PoolRange{
	{{CIDR: netip.MustParsePrefix("10.1.0.0/26"), BlockBits: 29}},
	{{CIDR: netip.MustParsePrefix("10.2.0.0/24"), BlockBits: 26}, {CIDR: netip.MustParsePrefix("fd00:2::/120"), BlockBits: 124}},
	{{CIDR: netip.MustParsePrefix("fd00:3::/60"), BlockBits: 64}},
}

// drawInput draws what a node may know: a small world, so that things meet.
func drawInput(t *rapid.T) Input {
	in := Input{
		Name: "me", Node: &cluster.Node{Name: "me", UID: rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "uid")},
		Now: 1000, IdleAfter: 100, Started: rapid.Int64Range(0, 1000).Draw(t, "started"), Reachable: true,
		Leases: map[string]cluster.Lease{}, Rejected: map[string]string{},
		Addresses: []netip.Addr{netip.MustParseAddr("198.18.1.1")},
	}
	var cidrs []netip.Prefix
	for i, ranges := range spaces {
		for _, r := range ranges {
			cidrs = append(cidrs, r.CIDR)
		}
		if !rapid.Bool().Draw(t, fmt.Sprintf("pool %d", i)) {
			continue
		}
		p := cluster.Pool{Name: fmt.Sprint("pool", i), Ranges: ranges, OnRequest: rapid.IntRange(0, 2).Draw(t, "on request") == 0}
		for range rapid.IntRange(0, 3).Draw(t, "reserved") {
			r := rapid.SampledFrom(ranges).Draw(t, "range")
			q := drawPrefix(t, r.CIDR, r.CIDR.Bits()+1, min(r.BlockBits+3, r.CIDR.Addr().BitLen()), "reserved")
			if !slices.ContainsFunc(p.Reserved, q.Overlaps) {
				p.Reserved = append(p.Reserved, q)
			}
		}
		slices.SortFunc(p.Reserved, netip.Prefix.Compare)
		in.Pools = append(in.Pools, p)
	}
	if rapid.IntRange(0, 5).Draw(t, "assigned") == 0 {
		in.Node.PodCIDRs = []netip.Prefix{drawPrefix(t, cidrs[0], 26, 29, "PodCIDR")}
	}
	prefix := func(label string) netip.Prefix {
		cidr := rapid.SampledFrom(cidrs).Draw(t, label+" in")
		return drawPrefix(t, cidr, cidr.Bits(), cidr.Bits()+4, label)
	}
	for range rapid.IntRange(0, 12).Draw(t, "leases") {
		l := cluster.Lease{Subnet: prefix("lease"), UID: "x", Node: rapid.SampledFrom([]string{"me", "other"}).Draw(t, "of"), NodeUID: "u1"}
		if _, overlaps := (&decider{in: in}).holder(l.Subnet); overlaps {
			continue
		}
		if rapid.IntRange(0, 3).Draw(t, "of a pod") == 0 {
			l.Pod, l.Subnet = "prod/db-0", drawPrefix(t, l.Subnet, l.Subnet.Addr().BitLen(), l.Subnet.Addr().BitLen(), "address")
		}
		if _, there := in.Leases[l.Name()]; there {
			continue
		}
		l.Created = rapid.Int64Range(0, 1000).Draw(t, "created")
		in.Leases[l.Name()] = l
		if l.Node == "me" && rapid.IntRange(0, 5).Draw(t, "rejected") == 0 {
			in.Rejected[l.Name()] = "overlaps"
		}
		if l.Node == "me" && l.Pod == "" && rapid.Bool().Draw(t, "served") {
			in.Blocks = append(in.Blocks, drawBlock(t, in.Pools, l.Subnet))
		}
	}
	for range rapid.IntRange(0, 2).Draw(t, "lost") {
		if p := prefix("lost"); !slices.ContainsFunc(in.Blocks, func(b Block) bool { return b.Subnet == p }) {
			in.Blocks = append(in.Blocks, drawBlock(t, in.Pools, p))
		}
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "networks") {
		in.Networks = append(in.Networks, Network{Prefix: prefix("network"), Dev: fmt.Sprint("eth", i)})
	}
	in.Nodes = map[string]cluster.Node{}
	for i := range rapid.IntRange(0, 2).Draw(t, "nodes") {
		name := fmt.Sprint("node", i)
		in.Nodes[name] = cluster.Node{Name: name, Addresses: []netip.Addr{prefix("of a node").Addr().Next()}}
	}
	in.Demand = rapid.SliceOfN(rapid.SampledFrom([]string{"pool0", "pool1", "pool2"}), 0, 2).Draw(t, "demand")
	for range rapid.IntRange(0, 2).Draw(t, "more") {
		in.Previous = append(in.Previous, prefix("previous"))
		in.Released = append(in.Released, prefix("released"))
		in.Taken = append(in.Taken, prefix("taken"))
	}
	return in
}

func drawBlock(t *rapid.T, pools []cluster.Pool, subnet netip.Prefix) Block {
	p, _ := poolOf(pools, subnet)
	b := Block{Subnet: subnet, Size: size(subnet, p.Reserved)}
	used := min(b.Size, rapid.SampledFrom([]uint64{0, 1, 3, 5, 250, b.Size / 2, b.Size - b.Size/8, b.Size}).Draw(t, "used"))
	b.Free = b.Size - used
	if used == 0 {
		b.IdleSince = rapid.Int64Range(1, 1000).Draw(t, "idle")
	}
	return b
}

func idle(in Input, subnet netip.Prefix) bool {
	return !slices.ContainsFunc(in.Blocks, func(b Block) bool { return b.Subnet.Overlaps(subnet) && b.IdleSince == 0 })
}

// Whatever the node knows: what it decides is safe and settles at once.
func TestDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		d := Decide(in)
		if diff := cmp.Diff(d, Decide(twice(in)), comparePrefixes, compareAddrs); diff != "" {
			t.Fatalf("another decision from the same:\n%s", diff)
		}
		checkClaims(t, in, d)
		checkLeases(t, in, d)
		n := 0
		for step := range 5 {
			carryOut(&in, d, &n)
			d = Decide(in)
			checkClaims(t, in, d)
			checkLeases(t, in, d)
			if step == 0 && len(d.Update) > 0 {
				t.Fatalf("decided again: %+v", d.Update)
			}
		}
		if len(d.Claim)+len(d.Release)+len(d.Update) > 0 {
			t.Fatalf("does not settle:\n%s", describe(d, in.Now))
		}
		if len(d.Waiting) == 0 && len(d.Serve) == 0 {
			t.Fatal("the node serves nothing and says nothing")
		}
	})
}

func checkClaims(t *rapid.T, in Input, d Decision) {
	var busy []netip.Prefix
	for _, l := range in.Leases {
		if l.Pod == "" {
			busy = append(busy, l.Subnet)
		}
	}
	busy = append(busy, in.Taken...)
	for _, l := range d.Claim {
		if slices.ContainsFunc(in.Networks, func(n Network) bool { return n.Prefix.Overlaps(l.Subnet) }) {
			t.Fatalf("claims %s of its own network", l.Subnet)
		}
		known := slices.ContainsFunc(in.Blocks, func(b Block) bool { return b.Subnet == l.Subnet })
		if !known && !slices.Contains(in.Node.PodCIDRs, l.Subnet) && (&decider{in: in}).hasNode(l.Subnet) {
			t.Fatalf("claims %s, in which is a node", l.Subnet)
		}
		if gateway, there := in.Leases[cluster.LeaseName(gatewayOf(l.Subnet))]; there && gateway.Pod != "" {
			t.Fatalf("claims %s, of which a pod has the gateway", l.Subnet)
		}
		if slices.ContainsFunc(busy, l.Subnet.Overlaps) {
			t.Fatalf("claims %s, which is taken", l.Subnet)
		}
		busy = append(busy, l.Subnet)
		p, ok := poolOf(in.Pools, l.Subnet)
		if ok && l.Pool == p.Name && size(l.Subnet, p.Reserved) == 0 {
			t.Fatalf("claims %s, which is reserved", l.Subnet)
		}
		if !ok && !slices.Contains(in.Node.PodCIDRs, l.Subnet) && idle(in, l.Subnet) {
			t.Fatalf("claims %s out of nowhere", l.Subnet)
		}
	}
}

func gatewayOf(block netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(block.Addr().Next(), block.Addr().BitLen())
}

func checkLeases(t *rapid.T, in Input, d Decision) {
	for _, l := range slices.Concat(d.Serve, d.Update, d.Release) {
		if in.Leases[l.Name()].Node != in.Name {
			t.Fatalf("%s is not this node's", l.Name())
		}
	}
	for _, l := range slices.Concat(d.Serve, d.Release, d.Claim) {
		if l.Pod != "" || in.Leases[l.Name()].Pod != "" {
			t.Fatalf("serves, gives back or claims %s, which is of a pod", l.Name())
		}
	}
	for _, l := range d.Update {
		if was := in.Leases[l.Name()]; l.Pod != was.Pod || l.Pod != "" && l.Pool != was.Pool {
			t.Fatalf("makes %+v of %+v", l, was)
		}
	}
	for _, l := range d.Serve {
		if in.Rejected[l.Name()] != "" {
			t.Fatalf("serves the rejected %s", l.Name())
		}
		if slices.ContainsFunc(in.Networks, func(n Network) bool { return n.Prefix.Overlaps(l.Subnet) }) {
			t.Fatalf("serves %s of its own network", l.Name())
		}
	}
	for _, l := range d.Release {
		if !idle(in, l.Subnet) {
			t.Fatalf("gives back %s, which is in use", l.Name())
		}
		if slices.ContainsFunc(d.Serve, func(s cluster.Lease) bool { return s.Subnet == l.Subnet }) {
			t.Fatalf("serves %s and gives it back", l.Name())
		}
		last := !slices.ContainsFunc(d.Serve, func(s cluster.Lease) bool { return familyOf(s.Subnet) == familyOf(l.Subnet) })
		p, inPool := poolOf(in.Pools, l.Subnet)
		obstacle := (&decider{in: in}).obstacle(l.Subnet)
		good := p.Selector.Matches(in.Node.Labels) && size(l.Subnet, p.Reserved) > 0 && obstacle == "" // or it is outdated or rejected, demand or not
		if good && slices.Contains(in.Demand, p.Name) && p.OnRequest && in.Rejected[l.Name()] == "" && len(in.Node.PodCIDRs) == 0 {
			t.Fatalf("gives back %s, which is in demand", l.Name())
		}
		if last && inPool && !p.OnRequest && len(in.Node.PodCIDRs) == 0 && good && in.Rejected[l.Name()] == "" {
			t.Fatalf("gives back the last, %s", l.Name())
		}
	}
}

// One node after the other gets a block, until every block that is neither
// reserved nor leased is found; then the refusal counts them.
func TestPoolIsExhausted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		if len(in.Pools) == 0 {
			t.Skip("no pool")
		}
		p := in.Pools[0]
		in.Pools, in.Previous, in.Blocks, in.Node.PodCIDRs = in.Pools[:1], nil, nil, nil
		in.Demand = []string{p.Name}
		want := map[netip.Prefix]bool{}
		for _, r := range p.Ranges {
			g := newGrid(r)
			for i := range g.blocks() {
				b := g.block(i)
				_, held := (&decider{in: in}).holder(b)
				d := &decider{in: in}
				if !held && d.obstacle(b) == "" && !d.hasNode(b) && !slices.ContainsFunc(in.Taken, b.Overlaps) && size(b, p.Reserved) > 0 {
					want[b] = true
				}
			}
		}
		for n := 0; ; n++ {
			in.Name = fmt.Sprint("node", n)
			d := Decide(in)
			for _, l := range d.Claim {
				if !want[l.Subnet] {
					t.Fatalf("claims %s", l.Subnet)
				}
				delete(want, l.Subnet)
				in.Leases[l.Name()] = l
				if rapid.IntRange(0, 9).Draw(t, "forgotten") == 0 {
					in.Released = nil
				}
			}
			if len(d.Claim) == 0 {
				break
			}
		}
		if len(want) > 0 {
			t.Fatalf("never claimed: %v", want)
		}
	})
}

// Pods come and go, time passes: each block that is given back stays given
// back while nothing changes, and a claim follows only more use.
func TestNoOscillation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(24, 30).Draw(t, "block bits")
		in := Input{
			Name: "me", Node: &cluster.Node{Name: "me"}, IdleAfter: 100, Reachable: true, Leases: map[string]cluster.Lease{},
			Pools: []cluster.Pool{{Name: "p", Ranges: []cluster.PoolRange{{CIDR: netip.MustParsePrefix("10.0.0.0/16"), BlockBits: bits}}}},
		}
		n := 0
		settle := func() (claims, releases int) {
			for range 100 {
				d := Decide(in)
				claims, releases = claims+len(d.Claim), releases+len(d.Release)
				carryOut(&in, d, &n)
				if len(d.Claim)+len(d.Release)+len(d.Update) == 0 {
					return claims, releases
				}
			}
			t.Fatal("never settles")
			return 0, 0
		}
		settle()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			more := rapid.Bool().Draw(t, "more")
			b := &in.Blocks[rapid.IntRange(0, len(in.Blocks)-1).Draw(t, "block")]
			if more {
				b.Free = rapid.Uint64Range(0, b.Free).Draw(t, "free")
			} else {
				b.Free = rapid.Uint64Range(b.Free, b.Size).Draw(t, "free")
			}
			if b.IdleSince = 0; b.Free == b.Size {
				b.IdleSince = in.Now
			}
			claims, releases := settle()
			if !more && claims > 0 {
				t.Fatalf("%d claims after pods went", claims)
			}
			if claims > 0 && releases > 0 {
				t.Fatalf("%d claims and %d releases at once", claims, releases)
			}
			in.Now += rapid.Int64Range(0, 300).Draw(t, "passes")
			if claims, _ := settle(); claims > 0 {
				t.Fatalf("%d claims because time passed", claims)
			}
		}
	})
}

// A grid agrees with counting.
func TestGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.SampledFrom([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}).Draw(t, "family")
		n := whole.Addr().BitLen()
		cidr := drawPrefix(t, whole, 0, min(n, 63), "cidr")
		r := cluster.PoolRange{CIDR: cidr, BlockBits: rapid.IntRange(cidr.Bits(), n).Draw(t, "block bits")}
		g := newGrid(r)
		i := rapid.Uint64Range(0, g.blocks()-1).Draw(t, "block")
		b := g.block(i)
		if b != b.Masked() || b.Bits() != r.BlockBits || !contains(cidr, b) || g.index(b.Addr()) != i {
			t.Fatalf("block %d of %v is %s, which is block %d", i, r, b, g.index(b.Addr()))
		}
		if i > 0 && !g.block(i-1).Addr().Less(b.Addr()) {
			t.Fatalf("%s is not before %s", g.block(i-1), b)
		}
		q := drawPrefix(t, g.cidr, g.cidr.Bits(), min(n, g.cidr.Bits()+62), "prefix")
		first, last, ok := g.indices(q)
		if !ok || !g.block(first).Overlaps(q) || !g.block(last).Overlaps(q) {
			t.Fatalf("%s is %d to %d", q, first, last)
		}
		if first > 0 && g.block(first-1).Overlaps(q) || last+1 < g.blocks() && g.block(last+1).Overlaps(q) {
			t.Fatalf("%s is more than %d to %d", q, first, last)
		}
	})
}

// Runs agree with a set of numbers.
func TestRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 64
		var rs runs
		var taken [n]bool
		for range rapid.IntRange(0, 12).Draw(t, "runs") {
			first := rapid.Uint64Range(0, n-1).Draw(t, "first")
			last := rapid.Uint64Range(first, min(n-1, first+12)).Draw(t, "last")
			rs = append(rs, run{first, last})
			for i := first; i <= last; i++ {
				taken[i] = true
			}
		}
		rs = rs.merged()
		count := uint64(0)
		for i, is := range taken {
			if _, found := rs.find(uint64(i)); found != is {
				t.Fatalf("find(%d) in %v: %v", i, rs, found)
			}
			if is {
				count++
			}
		}
		if rs.count() != count {
			t.Fatalf("%v count %d, want %d", rs, rs.count(), count)
		}
		start := rapid.Uint64Range(0, n-1).Draw(t, "start")
		got, ok := rs.free(start, n)
		for step := range uint64(n) {
			if i := (start + step) % n; !taken[i] {
				if !ok || got != i {
					t.Fatalf("free(%d) of %v: %d, %v, want %d", start, rs, got, ok, i)
				}
				return
			}
		}
		if ok {
			t.Fatalf("free(%d) of %v: %d, want none", start, rs, got)
		}
	})
}
