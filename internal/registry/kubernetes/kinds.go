// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry"
	"weft.dev/weft/internal/registry/convert"
)

// Resources, as in a path.
const (
	nodes         = "nodes"
	namespaces    = "namespaces"
	pods          = "pods"
	ippools       = "ippools"
	subnetleases  = "subnetleases"
	addressclaims = "addressclaims"
)

// followed is a kind that is read.
type followed struct {
	kind     registry.Kind
	resource string
	ours     bool   // in Weft's group
	only     string // field selector
	// value converts an object to what the Store wants.
	value func(runtime.Object) (any, error)
}

func kinds(node string) []followed {
	return []followed{
		{registry.Node, nodes, false, "", builtin(func(n *corev1.Node) (cluster.Node, error) { return peer(n, node) })},
		{registry.Namespace, namespaces, false, "", builtin(convert.Namespace)},
		{registry.Pod, pods, false, fields.OneTermEqualSelector("spec.nodeName", node).String(), builtin(convert.Pod)},
		poolKind,
		leaseKind,
		claimKind,
	}
}

// peer converts a Node; labels say only what this node may lease.
func peer(n *corev1.Node, self string) (cluster.Node, error) {
	value, err := convert.Node(n)
	if n.Name != self {
		value.Labels = nil
	}
	return value, err
}

func builtin[O, V any](convert func(*O) (V, error)) func(runtime.Object) (any, error) {
	return func(object runtime.Object) (any, error) {
		o, is := any(object).(*O)
		if !is {
			return nil, fmt.Errorf("is a %T", object)
		}
		return valueOf(convert(o))
	}
}

func custom[V any](convert func(metav1.ObjectMeta, []byte) (V, error)) func(runtime.Object) (any, error) {
	return func(object runtime.Object) (any, error) {
		o, is := object.(*raw)
		if !is {
			return nil, fmt.Errorf("is a %T", object)
		}
		return valueOf(convert(o.ObjectMeta, o.Spec))
	}
}

func valueOf[V any](v V, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func poolOf(meta metav1.ObjectMeta, spec []byte) (cluster.Pool, error) {
	o := v1alpha1.IPPool{ObjectMeta: meta}
	if err := decode(spec, &o.Spec); err != nil {
		return cluster.Pool{}, err
	}
	return convert.Pool(&o)
}

func leaseOf(meta metav1.ObjectMeta, spec []byte) (cluster.Lease, error) {
	o := v1alpha1.SubnetLease{ObjectMeta: meta}
	if err := decode(spec, &o.Spec); err != nil {
		return cluster.Lease{}, err
	}
	return convert.Lease(&o)
}

func claimOf(meta metav1.ObjectMeta, spec []byte) (cluster.Claim, error) {
	o := v1alpha1.AddressClaim{ObjectMeta: meta}
	if err := decode(spec, &o.Spec); err != nil {
		return cluster.Claim{}, err
	}
	return convert.Claim(&o)
}

// decode reads a spec. A field that it does not know is newer than this program:
// the API server refuses those that nobody knows.
func decode(spec []byte, into any) error {
	if len(spec) == 0 {
		return nil // Validate says what is missing
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(spec, into); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	return nil
}
