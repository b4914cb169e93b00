// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/ipam"
)

// choose returns the block of the pools to claim next, or an invalid one and why
// each pool has none.
func (d *decider) choose(f family, pools []cluster.Pool, h *held) (subnet netip.Prefix, reasons []string) {
	var promising []cluster.Pool
	for _, p := range pools {
		if reason := d.futile(h, p); reason != "" {
			reasons = append(reasons, reason)
		} else {
			promising = append(promising, p)
		}
	}
	for _, p := range d.in.Previous {
		if _, of := poolOf(promising, p); of && familyOf(p) == f && d.eligible(p) && !d.isBusy(p) {
			if _, held := d.holder(p); !held {
				return p, nil
			}
		}
	}
	for _, p := range promising {
		r, ok := rangeOf(p, f)
		if !ok {
			continue
		}
		subnet, reason := d.chooseFrom(p, r)
		if subnet.IsValid() {
			return subnet, nil
		}
		reasons = append(reasons, reason)
	}
	return netip.Prefix{}, reasons
}

// chooseFrom returns a free block of the range, or why there is none.
func (d *decider) chooseFrom(p cluster.Pool, r cluster.PoolRange) (subnet netip.Prefix, reason string) {
	g := newGrid(r)
	var leased, released runs
	for _, l := range d.in.Leases {
		if l.Pod == "" || g.cidr.Contains(l.Subnet.Addr()) && claims(l, g.block(g.index(l.Subnet.Addr()))) {
			leased = g.add(leased, l.Subnet)
		}
	}
	for _, b := range d.busy {
		leased = g.add(leased, b)
	}
	for _, b := range d.in.Released {
		released = g.add(released, b)
	}
	leased = leased.merged()
	reserved := append(slices.Clone(leased), g.reserved(p.Reserved)...).merged()
	avoided, because := d.avoided(g)
	busy := append(slices.Clone(reserved), avoided...).merged()
	start := d.start(p, r) & (g.blocks() - 1)
	if i, ok := append(released, busy...).merged().free(start, g.blocks()); ok {
		return g.block(i), ""
	}
	for _, b := range d.in.Released {
		if first, last, ok := g.indices(b); ok && first == last {
			if _, taken := busy.find(first); !taken {
				return g.block(first), ""
			}
		}
	}
	// What is left was released as a part of larger blocks.
	if i, ok := busy.free(start, g.blocks()); ok {
		return g.block(i), ""
	}
	return netip.Prefix{}, d.noneFree(p, r, [3]uint64{leased.count(), reserved.count(), busy.count()}, because)
}

// noneFree says why a range has no free block. counts are of its blocks: those
// that are leased, those and the reserved ones, and all that are not free.
func (d *decider) noneFree(p cluster.Pool, r cluster.PoolRange, counts [3]uint64, because string) string {
	for _, n := range d.in.Networks {
		if contains(n.Prefix, r.CIDR) {
			return fmt.Sprintf("IPPool %s: every block /%d in %s overlaps this node's network %s; give the pool another range",
				p.Name, r.BlockBits, r.CIDR, n)
		}
	}
	text := fmt.Sprintf("IPPool %s: of %d blocks /%d in %s, %d are leased and %d reserved",
		p.Name, newGrid(r).blocks(), r.BlockBits, r.CIDR, counts[0], counts[1]-counts[0])
	if n := counts[2] - counts[1]; n > 0 {
		text += fmt.Sprintf(", and %d cannot be used because of %s", n, because)
	}
	return text
}

// start is where in a range this node starts looking.
func (d *decider) start(p cluster.Pool, r cluster.PoolRange) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "weft lease %s %s %s", d.in.Name, familyOf(r.CIDR), p.Name))
	return binary.BigEndian.Uint64(sum[:8])
}

// rangeOf returns the pool's range of the family.
func rangeOf(p cluster.Pool, f family) (cluster.PoolRange, bool) {
	for _, r := range p.Ranges {
		if familyOf(r.CIDR) == f {
			return r, true
		}
	}
	return cluster.PoolRange{}, false
}

// poolOf returns the pool that the subnet is part of.
func poolOf(pools []cluster.Pool, subnet netip.Prefix) (cluster.Pool, bool) {
	for _, p := range pools {
		if r, ok := rangeOf(p, familyOf(subnet)); ok && contains(r.CIDR, subnet) {
			return p, true
		}
	}
	return cluster.Pool{}, false
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// sizeOf returns how many addresses pods can get out of the subnet.
func (d *decider) sizeOf(subnet netip.Prefix) uint64 {
	p, _ := poolOf(d.in.Pools, subnet)
	return size(subnet, p.Reserved)
}

// size counts as the node's IPAM does: neither network, gateway and broadcast
// address nor what is reserved.
func size(subnet netip.Prefix, reserved []netip.Prefix) uint64 {
	r := ipam.Range{Subnet: subnet}
	for _, p := range reserved {
		if p.Overlaps(subnet) {
			r.Exclude = append(r.Exclude, p)
		}
	}
	r, err := ipam.NewRange(r)
	if err != nil {
		return 0 // nothing that addresses can be given from
	}
	return ipam.Set{r}.Size()
}
