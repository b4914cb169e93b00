// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"weft.dev/weft/internal/registry"
)

// learnClaims puts into the Store what there is of claims, however far behind
// their watch is. A claim of an address is written while its node has the block
// around it; so whoever has seen the block free and then asks knows the claim.
//
// The watch goes on from where it is: what it tells later of a claim counts, its
// deletion too.
func (r *Registry) learnClaims(ctx context.Context) error {
	all := r.feeds.Load()
	if all == nil {
		return nil // there is no Store
	}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		answer, err := send(ctx, transient, func() *rest.Request {
			return r.weft.Get().Resource(addressclaims).VersionedParams(&options, parameters)
		})
		if err != nil {
			return claimKind.explain("list", err)
		}
		page, err := claimKind.list(answer)
		if err != nil {
			return fmt.Errorf("list %s: %w", addressclaims, err)
		}
		for _, object := range page.Items {
			all.byKind[registry.AddressClaim].wrote(object.(*item))
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}
