// SPDX-License-Identifier: Apache-2.0

package index

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// check fails unless x leads to exactly the elements of hashOf, by place, and
// its invariants hold.
func check(t *rapid.T, x *Index, hashOf map[int32]uint32) {
	if x.Len() != len(hashOf) {
		t.Fatalf("Len %d, want %d", x.Len(), len(hashOf))
	}
	for place, hash := range hashOf {
		got, ok := x.Find(hash, func(p int32) bool { return p == place })
		if !ok || got != place {
			t.Fatalf("find %d with hash %#x: got %d, %v", place, hash, got, ok)
		}
	}
	n := len(x.cells)
	if n&(n-1) != 0 || x.len > n-n/8 {
		t.Fatalf("%d elements in %d cells", x.len, n)
	}
	occupied := 0
	for at, c := range x.cells {
		if c == 0 {
			continue
		}
		occupied++
		if hash, ok := hashOf[c.place()]; !ok || hash != c.hash() {
			t.Fatalf("cell %d holds place %d, hash %#x, which nobody put there", at, c.place(), c.hash())
		}
		for from := int(c.hash()) & (n - 1); from != at; from = (from + 1) & (n - 1) {
			if x.cells[from] == 0 {
				t.Fatalf("cell %d is empty, between the home of %d and its cell %d", from, c.place(), at)
			}
		}
	}
	if occupied != len(hashOf) {
		t.Fatalf("%d cells are occupied by %d elements", occupied, len(hashOf))
	}
}

// TestIndexMatchesMap: few distinct hashes, so that elements collide and
// wrap around the end of the table.
func TestIndexMatchesMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Index
		hashOf := map[int32]uint32{}
		hashes := rapid.OneOf(
			rapid.SampledFrom([]uint32{0, 1, 6, 7, 15, 1 << 31, 1<<32 - 1, 1<<32 - 2}),
			rapid.Uint32Range(0, 40), rapid.Uint32())
		if rapid.Bool().Draw(t, "grow") {
			x.Grow(rapid.IntRange(0, 100).Draw(t, "room"))
		}
		place := rapid.Int32Range(0, 60)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				p, h := place.Draw(t, "place"), hashes.Draw(t, "hash")
				if _, ok := hashOf[p]; ok {
					t.Skip("the place is occupied")
				}
				x.Put(h, p)
				hashOf[p] = h
			},
			"delete": func(t *rapid.T) {
				p := place.Draw(t, "place")
				h, ok := hashOf[p]
				if !ok {
					t.Skip("nothing there")
				}
				x.Delete(h, p)
				delete(hashOf, p)
			},
			"move": func(t *rapid.T) {
				from, to := place.Draw(t, "from"), place.Draw(t, "to")
				h, ok := hashOf[from]
				if _, taken := hashOf[to]; !ok || taken {
					t.Skip("nothing there, or no room")
				}
				x.Move(h, from, to)
				delete(hashOf, from)
				hashOf[to] = h
			},
			"find nothing": func(t *rapid.T) {
				h := hashes.Draw(t, "hash")
				if p, ok := x.Find(h, func(p int32) bool {
					if hashOf[p] != h {
						t.Fatalf("asked about place %d with hash %#x for hash %#x", p, hashOf[p], h)
					}
					return false
				}); ok {
					t.Fatalf("found %d", p)
				}
			},
			"": func(t *rapid.T) { check(t, &x, hashOf) },
		})
	})
}

func TestGrowOnceIsEnough(t *testing.T) {
	for _, n := range []int{0, 1, 6, 7, 8, 14, 15, 56, 57, 4000, 4096, 7168, 7169} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			var x Index
			x.Grow(n)
			cells := len(x.cells)
			for i := range n {
				x.Put(uint32(i)*2654435769, int32(i))
			}
			if len(x.cells) != cells {
				t.Fatalf("%d cells were made for %d elements, and then %d", cells, n, len(x.cells))
			}
			if cells > minCells && cells > 4*n {
				t.Fatalf("%d cells for %d elements", cells, n)
			}
		})
	}
}

func TestWrongUse(t *testing.T) {
	for name, misuse := range map[string]func(*Index){
		"delete": func(x *Index) { x.Delete(5, 1) },
		"move":   func(x *Index) { x.Move(5, 1, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			var x Index
			x.Put(5, 0)
			defer func() {
				if recover() == nil {
					t.Fatal("an element that was never put is taken for one")
				}
			}()
			misuse(&x)
		})
	}
}
