// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"

	"weft.dev/weft/internal/core/cluster"
)

// Cluster is a registry: both sides of it.
type Cluster interface {
	Source
	Leases
}

// Source feeds a Store.
type Source interface {
	// Run feeds the Store until ctx ends. It returns an error only for what
	// no repetition can mend, such as a configuration that makes no sense.
	Run(ctx context.Context, into *Store) error
}

// Leases claims, corrects and gives back. A call that returns another error
// than those below may have happened or not.
type Leases interface {
	// Create returns ErrExists if there is a lease of that name.
	Create(ctx context.Context, l cluster.Lease) error
	// Replace writes l over the lease with its name, UID and Version; it
	// returns ErrConflict if there is another version or none.
	Replace(ctx context.Context, l cluster.Lease) error
	// Delete removes the lease with l's name and UID; ErrConflict if there is
	// one with another UID, nil if there is none.
	Delete(ctx context.Context, l cluster.Lease) error
}

// Outcomes that a caller decides by.
var (
	ErrExists   = errors.New("exists already")
	ErrConflict = errors.New("was changed by somebody else")
)
