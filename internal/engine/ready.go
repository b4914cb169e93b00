// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
)

// Ready reports why an ADD to the network could not succeed now: the journal
// cannot be read, or an address set is exhausted (*ipam.ExhaustedError). It
// changes nothing.
func (e *Engine) Ready(ctx context.Context, kind facts.Kind, n Network) error {
	return e.Store.View(ctx, func(f *facts.Facts) error {
		_, err := f.Usage(kind, n.Name).Allocate(n.Pool, ipam.Request{Now: e.now(), Cooldown: int64(n.Cooldown), Avoid: n.Avoid})
		return err
	})
}
