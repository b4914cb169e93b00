// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"weft.dev/weft/internal/core/cluster"
)

// peerCount is how many nodes the agent has as peers. Each holds a block of each
// family.
const peerCount = 5000

// selfName is the node that is measured.
const selfName = "self"

// crowd is a registry full of peers: a directory of manifests as kubelets and
// the peers' agents write them. All of them are on other segments than the node
// that is measured.
type crowd struct {
	dir   string
	ours  map[string]bool // files of leases that this program wrote
	draft string
}

// newCrowd writes the registry.
func newCrowd(dir string) (*crowd, error) {
	c := &crowd{dir: dir, ours: map[string]bool{}, draft: filepath.Join(dir, ".bench", "draft")}
	for _, sub := range []string{"nodes", "subnetleases", ".bench"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	files := map[string]string{"pool.yaml": poolManifest, "nodes/" + selfName + ".yaml": nodeManifest(selfName, "self", nil)}
	for i := range peerCount {
		p := peer(i)
		files["nodes/"+p.name()+".yaml"] = nodeManifest(p.name(), p.uid(), p.addresses(0))
		for _, block := range p.blocks() {
			file := leaseFile(block)
			files[file], c.ours[filepath.Base(file)] = p.lease(block, 0), true
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// forgetSelf removes the leases of the node that is measured: the next agent
// begins from nothing.
func (c *crowd) forgetSelf() error {
	entries, err := os.ReadDir(filepath.Join(c.dir, "subnetleases"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if c.ours[e.Name()] {
			continue
		}
		if err := os.Remove(filepath.Join(c.dir, "subnetleases", e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// prepare writes what publish then puts into place, at the price of a rename.
func (c *crowd) prepare(text string) error { return os.WriteFile(c.draft, []byte(text), 0o644) }

func (c *crowd) publish(block netip.Prefix) error {
	return os.Rename(c.draft, filepath.Join(c.dir, leaseFile(block)))
}

func (c *crowd) withdraw(block netip.Prefix) error {
	return os.Remove(filepath.Join(c.dir, leaseFile(block)))
}

func leaseFile(block netip.Prefix) string {
	return "subnetleases/" + cluster.LeaseName(block) + ".yaml"
}

// peer is one of the nodes, by number.
type peer uint16

func (p peer) name() string { return fmt.Sprintf("peer-%04d", p) }
func (p peer) uid() string  { return fmt.Sprintf("00000000-0000-4000-8000-%012d", p) }

// block4 and block6 are out of the pool.
func (p peer) block4() netip.Prefix {
	a := netip.AddrFrom4([4]byte{10, 64 + byte(p>>8), byte(p)})
	return netip.PrefixFrom(a, 24)
}

func (p peer) block6() netip.Prefix {
	a := netip.MustParseAddr("fd00:42::").As16()
	binary.BigEndian.PutUint16(a[6:], uint16(p))
	return netip.PrefixFrom(netip.AddrFrom16(a), 64)
}

func (p peer) blocks() []netip.Prefix { return []netip.Prefix{p.block4(), p.block6()} }

// addresses are the peer's on the underlay, after it has moved some times.
func (p peer) addresses(moves int) []netip.Addr {
	a6 := netip.MustParseAddr("2001:db8:18::").As16()
	binary.BigEndian.PutUint16(a6[12:], uint16(moves))
	host := p + 1 // 0 is nobody's
	binary.BigEndian.PutUint16(a6[14:], uint16(host))
	return []netip.Addr{
		netip.AddrFrom4([4]byte{198, 18 + byte(moves%2), byte(host >> 8), byte(host)}),
		netip.AddrFrom16(a6),
	}
}

const poolManifest = `apiVersion: weft.dev/v1alpha1
kind: IPPool
metadata:
  name: default
spec:
  ipv4:
    cidr: 10.64.0.0/11
  ipv6:
    cidr: fd00:42::/48
`

func nodeManifest(name, uid string, addresses []netip.Addr) string {
	var s strings.Builder
	fmt.Fprintf(&s, `apiVersion: v1
kind: Node
metadata:
  labels:
    kubernetes.io/hostname: %[1]s
  name: %[1]s
  uid: %[2]s
`, name, uid)
	for i, a := range addresses {
		if i == 0 {
			s.WriteString("status:\n  addresses:\n")
		}
		fmt.Fprintf(&s, "  - address: %s\n    type: InternalIP\n", a)
	}
	return s.String()
}

// lease is the manifest as the peer's agent writes it.
func (p peer) lease(block netip.Prefix, moves int) string {
	a := p.addresses(moves)
	return fmt.Sprintf(`apiVersion: weft.dev/v1alpha1
kind: SubnetLease
metadata:
  creationTimestamp: "2026-01-02T03:04:05Z"
  name: %[1]s
  ownerReferences:
  - apiVersion: v1
    kind: Node
    name: %[2]s
    uid: %[3]s
  resourceVersion: "%[4]d"
  uid: lease-%[1]s
spec:
  nodeAddresses:
  - %[5]s
  - %[6]s
  nodeName: %[2]s
  pool: default
  subnet: %[7]s
  vxlan:
    mac: %[8]s
    port: 4789
    vni: 119
`, cluster.LeaseName(block), p.name(), p.uid(), moves+1, a[0], a[1], block, cluster.VTEPMAC(p.name()))
}
