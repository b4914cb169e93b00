// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/convert"
)

// ready is why a node's network is not unavailable any more.
const ready = "WeftReady"

// untaintRounds bounds how often a Node that others write at the same time is
// read again.
const untaintRounds = 5

// Pod implements registry.Pods.
func (r *Registry) Pod(ctx context.Context, namespace, name string) (cluster.Pod, error) {
	key := namespace + "/" + name
	object, err := send(ctx, transient, func() *rest.Request {
		return r.core.Get().Namespace(namespace).Resource(pods).Name(name)
	})
	if apierrors.IsNotFound(err) {
		err = registry.ErrGone
	}
	if err != nil {
		return cluster.Pod{}, about(registry.Pod, key, "read", err)
	}
	value, err := builtin(convert.Pod)(object)
	if err != nil {
		return cluster.Pod{}, about(registry.Pod, key, "understand", err)
	}
	return value.(cluster.Pod), nil
}

// KeepAddresses implements registry.Pods.
func (r *Registry) KeepAddresses(ctx context.Context, c cluster.Claim) error {
	c.UID = ""
	post := func() *rest.Request { return r.weft.Post().Namespace(c.Namespace) }
	err := r.write(ctx, claimKind, refused, post, convert.AddressClaim(c))
	return about(registry.AddressClaim, c.Key(), "create", created(err))
}

// MarkReady implements registry.Pods. It asks the API server only if the Store
// shows that there is something to do.
func (r *Registry) MarkReady(ctx context.Context) error {
	all := r.feeds.Load()
	if all == nil {
		return errors.New("mark this node ready: the Kubernetes API is not being followed")
	}
	var node cluster.Node
	var known bool
	all.store.View(func(s *registry.State) { node, known = s.Nodes[r.node] })
	switch {
	case !known:
		return fmt.Errorf("mark this node ready: there is no Node %s (yet)", r.node)
	case !node.Unmarked:
		return nil
	}
	if err := r.setAvailable(ctx); err != nil {
		return about(registry.Node, r.node, "set the condition NetworkUnavailable of", err)
	}
	return about(registry.Node, r.node, "remove the taint "+convert.NotReadyTaint+" of", r.untaint(ctx))
}

// setAvailable sets the condition to False if it is True.
func (r *Registry) setAvailable(ctx context.Context) error {
	n, err := r.self(ctx)
	if err != nil || !slices.ContainsFunc(n.Status.Conditions, unavailable) {
		return err
	}
	now := metav1.NewTime(time.Now())
	return r.patch(ctx, "status", types.StrategicMergePatchType, map[string]any{"status": map[string]any{
		"conditions": []corev1.NodeCondition{{
			Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: ready, Message: "pods can be attached",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
	}})
}

func unavailable(c corev1.NodeCondition) bool {
	return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue
}

// untaint removes the taint. Taints are one value, which others change too: so
// the version must be the one that was read.
func (r *Registry) untaint(ctx context.Context) (err error) {
	for range untaintRounds {
		var n *corev1.Node
		if n, err = r.self(ctx); err != nil {
			return err
		}
		left := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Key == convert.NotReadyTaint })
		if len(left) == len(n.Spec.Taints) {
			return nil
		}
		err = r.patch(ctx, "", types.MergePatchType, map[string]any{
			"metadata": map[string]any{"resourceVersion": n.ResourceVersion},
			"spec":     map[string]any{"taints": left},
		})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// self reads this node's object, past the Store.
func (r *Registry) self(ctx context.Context) (*corev1.Node, error) {
	object, err := send(ctx, transient, func() *rest.Request { return r.core.Get().Resource(nodes).Name(r.node) })
	if err != nil {
		return nil, err
	}
	n, is := object.(*corev1.Node)
	if !is {
		return nil, fmt.Errorf("the API server sent a %T", object)
	}
	return n, nil
}

// patch changes this node's object.
func (r *Registry) patch(ctx context.Context, subresource string, kind types.PatchType, change any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = send(ctx, transient, func() *rest.Request {
		req := r.core.Patch(kind).Resource(nodes).Name(r.node).Body(body)
		if subresource != "" {
			req = req.SubResource(subresource)
		}
		return req
	})
	return err
}
