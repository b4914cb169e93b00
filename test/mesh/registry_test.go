// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// The types below are the test's own reading of the manifests, not the
// parsers'.

type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name    string    `json:"name"`
		UID     string    `json:"uid"`
		Created time.Time `json:"creationTimestamp"`
	} `json:"metadata"`
}

type leaseManifest struct {
	manifest
	Spec struct {
		Subnet    netip.Prefix `json:"subnet"`
		Pool      string       `json:"pool"`
		Node      string       `json:"nodeName"`
		Addresses []netip.Addr `json:"nodeAddresses"`
		VXLAN     *struct {
			MAC  string `json:"mac"`
			VNI  int    `json:"vni"`
			Port int    `json:"port"`
		} `json:"vxlan"`
	} `json:"spec"`
}

type poolManifest struct {
	manifest
	Spec struct {
		IPv4       *poolRange `json:"ipv4"`
		IPv6       *poolRange `json:"ipv6"`
		Masquerade *bool      `json:"masquerade"`
	} `json:"spec"`
}

type poolRange struct {
	CIDR netip.Prefix `json:"cidr"`
}

func (p poolManifest) cidrs() (list []netip.Prefix) {
	for _, r := range []*poolRange{p.Spec.IPv4, p.Spec.IPv6} {
		if r != nil {
			list = append(list, r.CIDR)
		}
	}
	return list
}

func (p poolManifest) masquerades() bool { return p.Spec.Masquerade == nil || *p.Spec.Masquerade }

// mac is that of the node's VTEP.
func (l leaseManifest) mac() string {
	if l.Spec.VXLAN == nil {
		return "that the lease does not say"
	}
	return l.Spec.VXLAN.MAC
}

// believed is what the registry says, but for what the test expects to be
// refused.
type believed struct {
	leases []leaseManifest
	pools  []poolManifest
}

// believe reads the registry.
func (m *mesh) believe() (b believed, err error) {
	files, err := filepath.Glob(m.path("registry", "subnetleases", "*.yaml"))
	if err != nil {
		return b, err
	}
	for _, file := range files {
		if m.refused[strings.TrimSuffix(filepath.Base(file), ".yaml")] {
			continue
		}
		var l leaseManifest
		if err := readManifest(file, &l); err != nil {
			return b, err
		}
		b.leases = append(b.leases, l)
	}
	files, err = filepath.Glob(m.path("registry", "pool*.yaml"))
	if err != nil {
		return b, err
	}
	for _, file := range files {
		var p poolManifest
		if err := readManifest(file, &p); err != nil {
			return b, err
		}
		b.pools = append(b.pools, p)
	}
	return b, nil
}

func readManifest(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	return nil
}

// leasesOf returns the leases of a node.
func (b believed) leasesOf(node string) (list []leaseManifest) {
	for _, l := range b.leases {
		if l.Spec.Node == node {
			list = append(list, l)
		}
	}
	return list
}

// leaseOf returns a node's only lease of a family.
func (m *mesh) leaseOf(node string, ipv4 bool) netip.Prefix {
	m.Helper()
	b, err := m.believe()
	m.must(err)
	var found []netip.Prefix
	for _, l := range b.leasesOf(node) {
		if l.Spec.Subnet.Addr().Is4() == ipv4 {
			found = append(found, l.Spec.Subnet)
		}
	}
	if len(found) != 1 {
		m.Fatalf("%s holds %v, want one lease of the family", node, found)
	}
	return found[0]
}

// whole verifies that every node has leases of all families of the lab and
// that no two leases overlap.
func (b believed) whole(nodes []string, families int) error {
	for i, a := range b.leases {
		for _, c := range b.leases[i+1:] {
			if a.Spec.Subnet.Overlaps(c.Spec.Subnet) {
				return fmt.Errorf("leases %s of %s and %s of %s overlap", a.Spec.Subnet, a.Spec.Node, c.Spec.Subnet, c.Spec.Node)
			}
		}
	}
	for _, n := range nodes {
		if has := len(b.leasesOf(n)); has < families {
			return fmt.Errorf("%s has %d leases, want %d at least", n, has, families)
		}
	}
	return nil
}

// poolText is the manifest of a pool; ranges are lines of its spec.
func poolText(name string, created int, spec ...string) string {
	return fmt.Sprintf("apiVersion: weft.dev/v1alpha1\nkind: IPPool\nmetadata: {name: %s, creationTimestamp: \"20%02d-01-01T00:00:00Z\"}\nspec:\n  %s\n",
		name, created, strings.Join(spec, "\n  "))
}

// leaseText is the manifest of a lease.
func leaseText(name, subnet, node, addresses string) string {
	return fmt.Sprintf("apiVersion: weft.dev/v1alpha1\nkind: SubnetLease\n"+
		"metadata: {name: %s, uid: made-up-%s, resourceVersion: \"1\", creationTimestamp: \"2099-01-01T00:00:00Z\"}\n"+
		"spec: {subnet: %q, nodeName: %s, nodeAddresses: [%s]}\n", name, name, subnet, node, addresses)
}

// loseLease deletes a lease behind its node's back.
func (m *mesh) loseLease(name string) {
	m.Helper()
	m.must(os.Remove(m.path("registry", "subnetleases", name+".yaml")))
}
