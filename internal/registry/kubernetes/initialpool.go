// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/registry"
)

var poolKind = followed{registry.IPPool, ippools, true, "", custom(poolOf)}

// CreatePool creates an IPPool; registry.ErrExists if there is one of that name.
func (r *Registry) CreatePool(ctx context.Context, p *v1alpha1.IPPool) error {
	err := r.write(ctx, poolKind, refused, r.weft.Post, p)
	return about(registry.IPPool, p.Name, "create", created(err))
}
