// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
)

// NotReadyTaint is the key of the taint that keeps pods from a node until its
// agent is ready. Operators give it to new nodes; the agent takes it away.
const NotReadyTaint = "weft.dev/agent-not-ready"

// annotationPrefix is what the keys of annotations begin with that are Weft's.
const annotationPrefix = v1alpha1.Group + "/"

// Node converts a Node. An InternalIP that other nodes cannot use, such as a
// link-local one, is left out: the node may have better ones.
func Node(n *corev1.Node) (cluster.Node, error) {
	errs := named(&n.ObjectMeta, false)
	node := cluster.Node{Name: shared(n.Name), UID: shared(string(n.UID)), Labels: n.Labels}
	for i, given := range n.Status.Addresses {
		if given.Type != corev1.NodeInternalIP {
			continue
		}
		a, err := netip.ParseAddr(given.Address)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath("status", "addresses").Index(i).Child("address"), given.Address, "want an address"))
		} else if cluster.UsableAddress(a) == nil {
			node.Addresses = append(node.Addresses, a)
		}
	}
	given := n.Spec.PodCIDRs
	if len(given) == 0 && n.Spec.PodCIDR != "" {
		given = []string{n.Spec.PodCIDR}
	}
	var wrong field.ErrorList
	node.PodCIDRs, wrong = podCIDRs(field.NewPath("spec", "podCIDRs"), given)
	if errs = append(errs, wrong...); len(errs) > 0 {
		return cluster.Node{}, errs.ToAggregate()
	}
	node.Unmarked = unmarked(n)
	return node, nil
}

// unmarked reports whether the object says that the node's network is not ready.
func unmarked(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue
	}) || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == NotReadyTaint })
}

func podCIDRs(path *field.Path, given []string) (subnets []netip.Prefix, errs field.ErrorList) {
	seen := map[bool]bool{}
	for i, text := range given {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			errs = append(errs, field.Invalid(path.Index(i), text, "want a CIDR such as 10.42.3.0/24"))
			continue
		}
		switch err := cluster.UsableSubnet(p); {
		case err != nil:
			errs = append(errs, field.Invalid(path.Index(i), text, err.Error()))
		case seen[p.Addr().Is4()]:
			errs = append(errs, field.Invalid(path.Index(i), text, "is the second one of its family; want at most one"))
		default:
			seen[p.Addr().Is4()] = true
			subnets = append(subnets, p)
		}
	}
	return subnets, errs
}

// Namespace converts a Namespace.
func Namespace(n *corev1.Namespace) (cluster.Namespace, error) {
	if errs := named(&n.ObjectMeta, false); len(errs) > 0 {
		return cluster.Namespace{}, errs.ToAggregate()
	}
	return cluster.Namespace{Name: n.Name, Annotations: annotations(n.Annotations)}, nil
}

// Pod converts a Pod. One that has terminated has no addresses: its status
// still names them, but they may be another pod's by now.
func Pod(p *corev1.Pod) (cluster.Pod, error) {
	errs := named(&p.ObjectMeta, true)
	pod := cluster.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Mirror: p.Annotations[corev1.MirrorPodAnnotationKey],
		Node: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork,
		Annotations: annotations(p.Annotations), Controller: controller(p.OwnerReferences),
		Created: created(p.CreationTimestamp),
		// A pod is scheduled, and is ready, since its condition was last not so.
		Scheduled: since(p.Status.Conditions, corev1.PodScheduled), Ready: since(p.Status.Conditions, corev1.PodReady),
	}
	given := p.Status.PodIPs
	if len(given) == 0 && p.Status.PodIP != "" {
		given = []corev1.PodIP{{IP: p.Status.PodIP}}
	}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		given = nil
	}
	for i, ip := range given {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath("status", "podIPs").Index(i).Child("ip"), ip.IP, "want an address"))
			continue
		}
		pod.Addresses = append(pod.Addresses, a)
	}
	if len(errs) > 0 {
		return cluster.Pod{}, errs.ToAggregate()
	}
	return pod, nil
}

// annotations returns those of Weft: others may be large, and change often.
func annotations(all map[string]string) map[string]string {
	var ours map[string]string
	for key, value := range all {
		if strings.HasPrefix(key, annotationPrefix) {
			if ours == nil {
				ours = map[string]string{}
			}
			ours[key] = value
		}
	}
	return ours
}

// controller returns the owner that made the object; zero if nobody did.
func controller(owners []metav1.OwnerReference) cluster.Owner {
	for _, o := range owners {
		if o.Controller != nil && *o.Controller {
			return owner(o)
		}
	}
	return cluster.Owner{}
}

func owner(o metav1.OwnerReference) cluster.Owner {
	return cluster.Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name, UID: string(o.UID)}
}

// since returns when a condition became true; 0 if it is not.
func since(conditions []corev1.PodCondition, kind corev1.PodConditionType) int64 {
	for _, c := range conditions {
		if c.Type == kind && c.Status == corev1.ConditionTrue {
			return created(c.LastTransitionTime)
		}
	}
	return 0
}

// named says what an object lacks to be told from others.
func named(meta *metav1.ObjectMeta, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	if meta.Name == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "name"), ""))
	}
	if namespaced && meta.Namespace == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "namespace"), ""))
	}
	return errs
}
