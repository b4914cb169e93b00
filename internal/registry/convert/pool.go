// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/core/cluster"
)

// Pool converts an IPPool with its defaults; it does not change p.
func Pool(p *v1alpha1.IPPool) (cluster.Pool, error) {
	if err := p.Validate().ToAggregate(); err != nil {
		return cluster.Pool{}, err
	}
	p = p.DeepCopy()
	p.Default()
	pool := cluster.Pool{
		Name:       p.Name,
		Created:    created(p.CreationTimestamp),
		Reserved:   merged(p.Spec.Reserved),
		Masquerade: *p.Spec.Masquerade,
		Selector:   selector(p.Spec.NodeSelector),
		OnRequest:  p.Spec.OnRequest,
	}
	for _, r := range []*v1alpha1.IPPoolRange{p.Spec.IPv4, p.Spec.IPv6} {
		if r != nil {
			pool.Ranges = append(pool.Ranges, cluster.PoolRange{CIDR: netip.MustParsePrefix(r.CIDR), BlockBits: int(*r.BlockSize)})
		}
	}
	return pool, nil
}

// created returns Unix nanoseconds, which reach until 2262. What is said to be
// younger is as young as can be.
func created(t metav1.Time) int64 {
	switch {
	case t.IsZero() || t.Unix() < 0:
		return 0
	case t.Unix() > math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

// merged returns the fewest prefixes that cover the same addresses, ascending
// and disjoint. So a block is reserved as a whole exactly if one of them
// contains it.
func merged(reserved []string) []netip.Prefix {
	var given []netip.Prefix
	for _, text := range reserved {
		p, _ := v1alpha1.ParseReserved(text) // Validate has seen to it
		given = append(given, p)
	}
	slices.SortFunc(given, netip.Prefix.Compare)
	var list []netip.Prefix
	for _, p := range given {
		if n := len(list); n > 0 && list[n-1].Overlaps(p) {
			continue // it sorts behind what contains it
		}
		list = append(list, p)
		for n := len(list); n > 1; n = len(list) {
			both := netip.PrefixFrom(list[n-1].Addr(), list[n-1].Bits()-1).Masked()
			if list[n-2].Bits() != list[n-1].Bits() || !both.Contains(list[n-2].Addr()) {
				break
			}
			list = append(list[:n-2], both)
		}
	}
	return list
}

// selector converts a valid label selector; nil selects everything, as in
// every optional selector of Kubernetes.
func selector(s *metav1.LabelSelector) cluster.Selector {
	if s == nil {
		return nil
	}
	var all cluster.Selector
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		all = append(all, cluster.Requirement{Key: key, Operator: cluster.In, Values: []string{s.MatchLabels[key]}})
	}
	for _, e := range s.MatchExpressions {
		all = append(all, cluster.Requirement{Key: e.Key, Operator: cluster.Operator(e.Operator), Values: e.Values})
	}
	return all
}
