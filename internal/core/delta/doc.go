// SPDX-License-Identifier: Apache-2.0

// Package delta keeps two maps, what is desired and what was observed, and at
// any time knows in which keys they differ: the operations that lead from one
// to the other. Changing either map costs as much as the change; asking for the
// operations costs as much as there are.
package delta
