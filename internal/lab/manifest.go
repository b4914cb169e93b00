// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// The types below are the lab's own copies of what it writes and reads in the
// registry, see config.go.

type manifest struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   metadata `json:"metadata"`
	Spec       any      `json:"spec,omitempty"`
}

type metadata struct {
	Name   string            `json:"name"`
	UID    string            `json:"uid,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

type poolSpec struct {
	IPv4 *poolRange `json:"ipv4,omitempty"`
	IPv6 *poolRange `json:"ipv6,omitempty"`
}

type poolRange struct {
	CIDR netip.Prefix `json:"cidr"`
}

// poolName is the name of the one pool.
const poolName = "default"

// segmentLabel is the label that tells a node's segment to people; Weft finds
// out by itself.
const segmentLabel = "weft.dev/segment"

// poolYAML returns the manifest of the pool that all nodes lease from.
func poolYAML(subnets []netip.Prefix) ([]byte, error) {
	var spec poolSpec
	for _, p := range subnets {
		if p.Addr().Is4() {
			spec.IPv4 = &poolRange{p}
		} else {
			spec.IPv6 = &poolRange{p}
		}
	}
	return manifestYAML(manifest{
		APIVersion: "weft.dev/v1alpha1", Kind: "IPPool",
		Metadata: metadata{Name: poolName}, Spec: spec,
	})
}

// nodeYAML returns the manifest of a node as a kubelet registers it, but for
// its addresses, which the agent has to find.
func nodeYAML(n Node, uid string) ([]byte, error) {
	return manifestYAML(manifest{
		APIVersion: "v1", Kind: "Node",
		Metadata: metadata{Name: n.Name, UID: uid, Labels: map[string]string{
			"kubernetes.io/hostname": n.Name,
			segmentLabel:             n.Segment,
		}},
	})
}

func manifestYAML(m manifest) ([]byte, error) {
	text, err := yaml.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("write manifest of %s %s: %w", m.Kind, m.Metadata.Name, err)
	}
	return text, nil
}

// newUID returns a random UUID (RFC 9562, version 4), which is what Kubernetes
// gives every object.
func newUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // never fails, see its documentation
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// lease is what the lab reads of a SubnetLease.
type lease struct {
	Metadata struct {
		Name   string `json:"name"`
		Owners []struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Subnet netip.Prefix `json:"subnet"`
	} `json:"spec"`
}

func (l lease) of(node string) bool {
	for _, o := range l.Metadata.Owners {
		if o.Kind == "Node" && o.Name == node {
			return true
		}
	}
	return false
}

// leases returns the leases in the registry. A file that is no lease is passed
// over: that it is there is the agents' business, and for tests a normal thing.
func (l layout) leases() ([]lease, error) {
	paths, err := filepath.Glob(l.lease("*"))
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	var all []lease
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // given back meanwhile
		}
		var one lease
		if yaml.Unmarshal(text, &one) == nil && l.lease(one.Metadata.Name) == path {
			all = append(all, one)
		}
	}
	return all, nil
}

// unregister deletes a node from the registry: its Node object, and then, as
// Kubernetes' garbage collection does for what a Node owns, its leases.
func (l layout) unregister(node string) error {
	if err := os.Remove(l.manifest(node)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete Node %s: %w", node, err)
	}
	leases, err := l.leases()
	errs := []error{err}
	for _, one := range leases {
		if !one.of(node) {
			continue
		}
		if err := os.Remove(l.lease(one.Metadata.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("delete SubnetLease %s: %w", one.Metadata.Name, err))
		}
	}
	return errors.Join(errs...)
}
