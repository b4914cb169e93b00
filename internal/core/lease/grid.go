// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"
	"sort"

	"weft.dev/weft/internal/core/cluster"
)

// grid numbers the blocks of a pool's range from 0.
type grid struct {
	cidr netip.Prefix
	bits int // prefix length of a block
}

// newGrid leaves all but the first 2^63 blocks of a range out of account.
func newGrid(r cluster.PoolRange) grid {
	return grid{netip.PrefixFrom(r.CIDR.Addr(), max(r.CIDR.Bits(), r.BlockBits-63)), r.BlockBits}
}

// blocks is a power of two.
func (g grid) blocks() uint64 { return 1 << (g.bits - g.cidr.Bits()) }

// index returns the number of the block that holds a, an address of the range.
func (g grid) index(a netip.Addr) uint64 {
	hi, lo := halves(a)
	shift := a.BitLen() - g.bits
	if shift > 64 {
		return hi >> (shift - 64) & (g.blocks() - 1)
	}
	return (lo>>shift | hi<<(64-shift)) & (g.blocks() - 1) // a shift by 64 gives 0
}

// block is the inverse of index.
func (g grid) block(i uint64) netip.Prefix {
	hi, lo := halves(g.cidr.Addr())
	shift := g.cidr.Addr().BitLen() - g.bits
	lo |= i << shift
	if shift > 64 {
		hi |= i << (shift - 64)
	} else {
		hi |= i >> (64 - shift)
	}
	if g.cidr.Addr().Is4() {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(lo)))), g.bits)
	}
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, hi), lo)
	return netip.PrefixFrom(netip.AddrFrom16([16]byte(b)), g.bits)
}

// halves returns the address as a number; hi is 0 for IPv4.
func halves(a netip.Addr) (hi, lo uint64) {
	if a.Is4() {
		b := a.As4()
		return 0, uint64(binary.BigEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
}

// indices returns the blocks that a prefix overlaps.
func (g grid) indices(p netip.Prefix) (first, last uint64, ok bool) {
	switch {
	case !g.cidr.Overlaps(p):
		return 0, 0, false
	case p.Bits() <= g.cidr.Bits():
		return 0, g.blocks() - 1, true
	}
	first = g.index(p.Addr())
	if p.Bits() >= g.bits {
		return first, first, true
	}
	return first, first + 1<<(g.bits-p.Bits()) - 1, true
}

func (g grid) add(to runs, p netip.Prefix) runs {
	if first, last, ok := g.indices(p); ok {
		return append(to, run{first, last})
	}
	return to
}

// reserved returns the blocks in which no address is left for a pod. prefixes
// are ascending and disjoint.
func (g grid) reserved(prefixes []netip.Prefix) runs {
	var whole runs
	for i, p := range prefixes {
		first, last, ok := g.indices(p)
		if !ok {
			continue
		}
		// Several small prefixes can cover a block together.
		again := i > 0 && p.Bits() > g.bits && g.block(first).Overlaps(prefixes[i-1])
		if p.Bits() <= g.bits || !again && size(g.block(first), prefixes) == 0 {
			whole = append(whole, run{first, last})
		}
	}
	return whole
}

// run is a run of blocks, both ends inclusive.
type run struct{ first, last uint64 }

// runs are merged if they are ascending and neither touch nor overlap.
type runs []run

func (rs runs) merged() runs {
	slices.SortFunc(rs, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && r.first <= out[n-1].last+1 {
			out[n-1].last = max(out[n-1].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// find returns the run of merged runs that holds a block.
func (rs runs) find(i uint64) (run, bool) {
	n := sort.Search(len(rs), func(n int) bool { return rs[n].last >= i })
	if n < len(rs) && rs[n].first <= i {
		return rs[n], true
	}
	return run{}, false
}

// free returns the first block from start on, of n in a circle, that is in
// none of the merged runs.
func (rs runs) free(start, n uint64) (uint64, bool) {
	for _, from := range []uint64{start, 0} {
		r, taken := rs.find(from)
		if !taken {
			return from, true
		}
		if r.last+1 < n {
			return r.last + 1, true
		}
	}
	return 0, false
}

func (rs runs) count() uint64 {
	n := uint64(0)
	for _, r := range rs {
		n += r.last - r.first + 1
	}
	return n
}
