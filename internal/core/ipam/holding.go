// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/binary"
	"net/netip"

	"weft.dev/weft/internal/core/ipam/index"
)

// holdings are addresses with an owner each, in no particular order. They are
// a map in half the memory: package index says for whom that counts.
type holdings struct {
	list  []holding
	index index.Index
}

// holding has the address as 16 bytes, IPv4 as IPv4-mapped: without the pointer
// of a netip.Addr. It is unambiguous, as a plain address is never mapped.
type holding struct {
	addr  [16]byte
	owner string // never ""
}

// hashOf multiplies by odd constants near 2^64 divided by the golden ratio and
// by the square root of 2: neighbouring addresses, which are the usual case,
// get hashes that lie apart.
func hashOf(a [16]byte) uint32 {
	upper, lower := binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:])
	h := (lower ^ upper*0xb504f333f9de6485) * 0x9e3779b97f4a7c15
	return uint32(h >> 32)
}

func (h *holdings) find(a [16]byte, hash uint32) (int32, bool) {
	return h.index.Find(hash, func(i int32) bool { return h.list[i].addr == a })
}

// owner returns who has a; "" if nobody.
func (h *holdings) owner(a netip.Addr) string {
	if len(h.list) == 0 || !plain(a) {
		return ""
	}
	key := a.As16()
	if i, ok := h.find(key, hashOf(key)); ok {
		return h.list[i].owner
	}
	return ""
}

// take makes owner the owner of a plain address, if it has none. holder is who
// had it before; "" if nobody.
func (h *holdings) take(a netip.Addr, owner string) (holder string) {
	key := a.As16()
	hash := hashOf(key)
	if i, ok := h.find(key, hash); ok {
		return h.list[i].owner
	}
	h.index.Put(hash, int32(len(h.list)))
	h.list = append(h.list, holding{key, owner})
	return ""
}

// remove takes out an address that has an owner. The last of the list gets its
// place.
func (h *holdings) remove(a netip.Addr) {
	key := a.As16()
	hash := hashOf(key)
	i, ok := h.find(key, hash)
	if !ok {
		return
	}
	h.index.Delete(hash, i)
	last := int32(len(h.list) - 1)
	if i != last {
		h.list[i] = h.list[last]
		h.index.Move(hashOf(h.list[i].addr), last, i)
	}
	h.list[last] = holding{} // the owner's memory is not ours any more
	h.list = h.list[:last]
}

func (h *holdings) len() int { return len(h.list) }

// all yields every address and its owner.
func (h *holdings) all(yield func(netip.Addr, string) bool) {
	for i := range h.list {
		if !yield(netip.AddrFrom16(h.list[i].addr).Unmap(), h.list[i].owner) {
			return
		}
	}
}
