// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"

	"weft.dev/weft/internal/core/delta"
)

// Driver reads and writes one kind of kernel object.
type Driver[K delta.Key[K], V comparable] interface {
	// Observe returns all objects of the kind that are ours.
	Observe() (map[K]V, error)
	// Apply carries out operations, in any order, each independent of the
	// others, and returns one error per operation, nil where it is done. An
	// operation is done if the object is as wanted afterwards, whoever made it
	// so: adding what is there, or deleting what is not, succeeds. Nothing
	// that is not ours is changed: an Add in whose place there is something
	// foreign fails.
	Apply(ops []delta.Op[K, V]) []error
}

// Awaiting is an error of an operation in whose way there is something that will
// go without anybody's help. The operation is pending, not failing. It is tried
// again like one that failed, and whenever Retry says that what it waits for may
// be gone.
type Awaiting interface {
	error
	Awaits() bool
}

// awaits reports whether the error is such a one.
func awaits(err error) bool {
	var a Awaiting
	return errors.As(err, &a) && a.Awaits()
}
