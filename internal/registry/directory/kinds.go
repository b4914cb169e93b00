// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/registry/convert"
)

// defaultNamespace is where a Pod or an AddressClaim is that does not say it.
const defaultNamespace = corev1.NamespaceDefault

// readers has the kinds that are read, by apiVersion and kind. What a reader
// returns is the value that the Store wants, or an error.
var readers = map[string]func(object []byte) (any, error){
	"v1 Node":      foreign(convert.Node),
	"v1 Namespace": foreign(convert.Namespace),
	"v1 Pod":       foreign(pod),

	v1alpha1.GroupVersion.String() + " " + v1alpha1.IPPoolKind:      ours(convert.Pool),
	v1alpha1.GroupVersion.String() + " " + v1alpha1.SubnetLeaseKind: ours(convert.Lease),

	v1alpha1.GroupVersion.String() + " " + v1alpha1.AddressClaimKind: ours(claim),
}

func claim(c *v1alpha1.AddressClaim) (cluster.Claim, error) {
	if c.Namespace == "" {
		c.Namespace = defaultNamespace
	}
	return convert.Claim(c)
}

func pod(p *corev1.Pod) (cluster.Pod, error) {
	if p.Namespace == "" {
		p.Namespace = defaultNamespace
	}
	return convert.Pod(p)
}

// foreign reads a kind of Kubernetes, which may have fields that are newer
// than this program.
func foreign[O, V any](convert func(*O) (V, error)) func([]byte) (any, error) {
	return func(object []byte) (any, error) {
		o := new(O)
		if err := kjson.UnmarshalCaseSensitivePreserveInts(object, o); err != nil {
			return nil, err
		}
		return valueOf(convert(o))
	}
}

// ours reads a kind of Weft, in which an unknown field is a slip of the pen.
func ours[O, V any](convert func(*O) (V, error)) func([]byte) (any, error) {
	return func(object []byte) (any, error) {
		o := new(O)
		slips, err := kjson.UnmarshalStrict(object, o)
		if err := errors.Join(append(slips, err)...); err != nil {
			return nil, err
		}
		return valueOf(convert(o))
	}
}

func valueOf[V any](v V, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}
