// SPDX-License-Identifier: Apache-2.0

// Package index finds the elements of a slice by hash.
//
// It exists for processes that live for milliseconds and index thousands of
// elements that they never look at again: there, touching new memory is a
// large part of the cost, and a Go map of the same elements touches two to three
// times as much. The slice holds the elements, in its own compact form; an Index holds
// nothing but 8 bytes per cell.
//
// The user of an Index keeps the slice, computes the hashes and compares the
// elements. The hash must depend on all that is compared, and is best when its
// low bits differ.
//
// # Invariants
//
//   - The number of cells is zero or a power of two; at most 7/8 of them are
//     occupied, so each search ends at an empty one.
//   - Between the home cell of an element (its hash modulo the number of cells)
//     and the cell that it is in, no cell is empty. Delete moves elements back
//     to keep that true; there are no tombstones.
//
// An Index is not safe for concurrent use. It has no iteration: that is the
// slice's part.
package index
