// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/convert"
)

var (
	leaseKind = followed{registry.SubnetLease, subnetleases, true, "", custom(leaseOf)}
	claimKind = followed{registry.AddressClaim, addressclaims, true, "", custom(claimOf)}
)

// deleteRounds bounds how often a delete follows a lease that this node writes
// at the same time.
const deleteRounds = 3

// Create implements registry.Leases. The API server sets UID, Version and
// Created.
func (r *Registry) Create(ctx context.Context, l cluster.Lease) error {
	if l.Pod == "" {
		if err := r.learnClaims(ctx); err != nil {
			return fmt.Errorf("create SubnetLease %s: %w, because which of its addresses pods keep is not known: %w", l.Name(), registry.ErrUntried, err)
		}
	}
	l.UID, l.Version, l.Created = "", "", 0
	err := r.write(ctx, leaseKind, refused, r.weft.Post, convert.SubnetLease(l))
	return about(registry.SubnetLease, l.Name(), "create", created(err))
}

// Replace implements registry.Leases. When the lease was created stays.
func (r *Registry) Replace(ctx context.Context, l cluster.Lease) error {
	l.Created = 0
	put := func() *rest.Request { return r.weft.Put().Name(l.Name()) }
	err := r.write(ctx, leaseKind, transient, put, convert.SubnetLease(l))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		err = registry.ErrConflict
	}
	return about(registry.SubnetLease, l.Name(), "replace", err)
}

// Delete implements registry.Leases. With a Version it deletes nothing that it
// has not seen: if there is another version by now, it looks whose that is. A
// lease that another node holds is ErrConflict, even with the same UID.
func (r *Registry) Delete(ctx context.Context, l cluster.Lease) error {
	gone, err := r.deleteVersion(ctx, l)
	for range deleteRounds {
		if !apierrors.IsConflict(err) {
			break
		}
		var now cluster.Lease
		if now, err = r.lease(ctx, l.Name()); err != nil {
			break
		}
		if now.UID != l.UID || now.Node != l.Node {
			err = registry.ErrConflict
			break
		}
		l = now
		gone, err = r.deleteVersion(ctx, l)
	}
	if apierrors.IsNotFound(err) {
		gone, err = true, nil
	}
	if all := r.feeds.Load(); all != nil && gone {
		all.byKind[registry.SubnetLease].deleted(l.Name(), types.UID(l.UID))
	}
	return about(registry.SubnetLease, l.Name(), "delete", err)
}

// deleteVersion reports whether the lease is gone. One with a finalizer is not
// yet when its deletion succeeds; the answer is the lease then.
func (r *Registry) deleteVersion(ctx context.Context, l cluster.Lease) (gone bool, err error) {
	uid, must := types.UID(l.UID), &metav1.Preconditions{}
	must.UID = &uid
	if l.Version != "" {
		must.ResourceVersion = &l.Version
	}
	answer, err := send(ctx, transient, func() *rest.Request {
		return r.weft.Delete().Resource(subnetleases).Name(l.Name()).Body(&metav1.DeleteOptions{Preconditions: must})
	})
	_, gone = answer.(*metav1.Status)
	return gone && err == nil, err
}

// lease reads a lease, past the Store.
func (r *Registry) lease(ctx context.Context, name string) (cluster.Lease, error) {
	object, err := send(ctx, transient, func() *rest.Request { return r.weft.Get().Resource(subnetleases).Name(name) })
	if err != nil {
		return cluster.Lease{}, err
	}
	value, err := leaseKind.value(object)
	if err != nil {
		return cluster.Lease{}, fmt.Errorf("understand what is there: %w", err)
	}
	return value.(cluster.Lease), nil
}
