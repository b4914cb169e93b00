// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
)

// Every peer has blocks and addresses of its own, before and after it moved, and
// the blocks are out of the pool.
func TestPeersAreDistinct(t *testing.T) {
	pools := []netip.Prefix{netip.MustParsePrefix("10.64.0.0/11"), netip.MustParsePrefix("fd00:42::/48")}
	blocks, addrs := map[netip.Prefix]bool{}, map[netip.Addr]bool{}
	for i := range peerCount {
		p := peer(i)
		for j, b := range p.blocks() {
			blocks[b] = true
			if !pools[j].Contains(b.Addr()) || b != b.Masked() {
				t.Errorf("%s: block %s is not of pool %s", p.name(), b, pools[j])
			}
		}
		for moves := range 2 {
			for _, a := range p.addresses(moves) {
				addrs[a] = true
			}
		}
	}
	if len(blocks) != 2*peerCount || len(addrs) != 4*peerCount {
		t.Errorf("%d blocks and %d addresses, want %d and %d", len(blocks), len(addrs), 2*peerCount, 4*peerCount)
	}
}

// What is written is a lease in the words of the API, and nothing else.
func TestLeaseManifest(t *testing.T) {
	p := peer(4711)
	for _, block := range p.blocks() {
		var l v1alpha1.SubnetLease
		if err := yaml.UnmarshalStrict([]byte(p.lease(block, 1)), &l); err != nil {
			t.Fatal(err)
		}
		if l.Spec.Subnet != block.String() || l.Spec.NodeName != p.name() || l.Spec.NodeAddresses[0] != p.addresses(1)[0].String() {
			t.Errorf("%+v", l)
		}
		if errs := l.Validate(); len(errs) > 0 {
			t.Errorf("%s: %v", block, errs)
		}
	}
}

// The leases that the measured node took are removed, and no others.
func TestForgetSelf(t *testing.T) {
	dir := t.TempDir()
	c, err := newCrowd(dir)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, leaseFile(netip.MustParsePrefix("10.90.0.0/24")))
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.forgetSelf(); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "subnetleases"))
	if err != nil || len(entries) != 2*peerCount {
		t.Errorf("%v: %d leases, want %d", err, len(entries), 2*peerCount)
	}
}

func TestCheckWay(t *testing.T) {
	both := func(uplink, overlay, other uint64) [2]sent { return [2]sent{{uplink, overlay}, {uplink: other}} }
	tests := []struct {
		name  string
		way   string
		after [2]sent
		ok    bool
	}{
		{"by VXLAN", vxlan, both(1_100_000, 1_050_000, 500), true},
		{"native instead of VXLAN", vxlan, both(1_100_000, 0, 0), false},
		{"native", native, both(1_100_000, 0, 500), true},
		{"VXLAN instead of native", native, both(1_100_000, 1_050_000, 0), false},
		{"nothing left node1", native, both(10_000, 0, 0), false},
		{"through the other wiring", native, both(1_100_000, 0, 1_100_000), false},
	}
	for _, tt := range tests {
		if err := checkWay(tt.way, 1_000_000, [2]sent{}, tt.after); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestParseStream(t *testing.T) {
	rate, bytes, err := parseStream([]byte(`{"end":{"sum_sent":{"bits_per_second":9},"sum_received":{"bits_per_second":8e9,"bytes":2e9}}}`))
	if err != nil || rate != 8e9 || bytes != 2e9 {
		t.Errorf("%v, %v, %v", rate, bytes, err)
	}
	for _, raw := range []string{`{"error":"unable to connect"}`, `not JSON`} {
		if _, _, err := parseStream([]byte(raw)); err == nil {
			t.Errorf("%s: no error", raw)
		}
	}
}
