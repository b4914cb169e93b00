// SPDX-License-Identifier: Apache-2.0

package index

import "math/bits"

// Index leads from hashes to places in a slice. The zero value is empty.
type Index struct {
	cells []cell
	len   int
}

// cell holds a hash in its upper half and, in the lower, the place plus one. 0
// is the empty cell. With the whole hash at hand, the slice is looked at for
// equal hashes only, and cells can move without asking for theirs.
type cell uint64

func cellOf(hash uint32, place int32) cell { return cell(hash)<<32 | cell(uint32(place+1)) }

func (c cell) hash() uint32 { return uint32(c >> 32) }
func (c cell) place() int32 { return int32(uint32(c)) - 1 }

// minCells is the size of the smallest table, a cache line.
const minCells = 8

// Grow makes room for n elements in all.
func (x *Index) Grow(n int) {
	if want := n + n/7 + 1; want > len(x.cells) {
		x.resize(max(minCells, 1<<bits.Len(uint(want-1))))
	}
}

func (x *Index) resize(cells int) {
	old := x.cells
	x.cells = make([]cell, cells)
	for _, c := range old {
		if c != 0 {
			x.insert(c)
		}
	}
}

// insert puts c into the first empty cell from its home on.
func (x *Index) insert(c cell) {
	mask := uint32(len(x.cells) - 1)
	at := c.hash() & mask
	for x.cells[at] != 0 {
		at = (at + 1) & mask
	}
	x.cells[at] = c
}

// Len returns the number of elements.
func (x *Index) Len() int { return x.len }

// Find returns the place of the element with this hash for which is holds.
func (x *Index) Find(hash uint32, is func(place int32) bool) (place int32, ok bool) {
	if len(x.cells) == 0 {
		return 0, false
	}
	mask := uint32(len(x.cells) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		c := x.cells[at]
		if c == 0 {
			return 0, false
		}
		if c.hash() == hash && is(c.place()) {
			return c.place(), true
		}
	}
}

// Put adds an element, which must not be in the index yet; place is 0 or
// greater.
func (x *Index) Put(hash uint32, place int32) {
	x.Grow(x.len + 1)
	x.insert(cellOf(hash, place))
	x.len++
}

// Move tells that the element is at another place of the slice now.
func (x *Index) Move(hash uint32, from, to int32) {
	x.cells[x.at(cellOf(hash, from))] = cellOf(hash, to)
}

// Delete removes the element with this hash and place, which must be in the
// index.
func (x *Index) Delete(hash uint32, place int32) {
	mask := uint32(len(x.cells) - 1)
	hole := x.at(cellOf(hash, place))
	x.len--
	// An element behind the hole may fill it unless its home lies after the
	// hole: then it would be before its home. Distances count around the end.
	for at := (hole + 1) & mask; x.cells[at] != 0; at = (at + 1) & mask {
		home := x.cells[at].hash() & mask
		if (at-home)&mask >= (at-hole)&mask {
			x.cells[hole] = x.cells[at]
			hole = at
		}
	}
	x.cells[hole] = 0
}

// at returns where c is. An element that the index does not have is a mistake
// of its user, after which nothing that it says could be trusted.
func (x *Index) at(c cell) uint32 {
	mask := uint32(len(x.cells) - 1)
	for at := c.hash() & mask; ; at = (at + 1) & mask {
		switch x.cells[at] {
		case c:
			return at
		case 0:
			panic("index: the element is not in it")
		}
	}
}
