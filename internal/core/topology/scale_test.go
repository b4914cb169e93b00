// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"weft.dev/weft/internal/core/cluster"
)

const peers = 5000

// bigCluster has two leases for each node, all reached by VXLAN, and returns
// them from the middle, as a registry does in no order. Each lease has strings
// of its own, as parsed from its manifest.
func bigCluster() []cluster.Lease {
	leases := make([]cluster.Lease, 0, 2*peers)
	for i := range peers {
		n := (i*2081 + peers/2) % peers
		for _, subnet := range []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + n>>8), byte(n), 0}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x42, 6: byte(n >> 8), 7: byte(n)}), 64),
		} {
			leases = append(leases, bigLease(n, subnet, 1))
		}
	}
	return leases
}

func bigLease(n int, subnet netip.Prefix, segment byte) cluster.Lease {
	node := fmt.Sprintf("worker-%04d.example.com", n)
	return cluster.Lease{
		Subnet: subnet, UID: fmt.Sprintf("%036d", n), Version: fmt.Sprint(n), Created: int64(n), Pool: "default",
		Node: node, NodeUID: fmt.Sprintf("%036d", n),
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{172, 16 + segment, byte(n >> 8), byte(n)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 3: segment, 14: byte(n >> 8), 15: byte(n)}),
		},
		VTEP: cluster.VTEP{MAC: cluster.VTEPMAC(node), VNI: 1, Port: 8472},
	}
}

func bigSelf() Self {
	return Self{
		Node: "worker-0000.example.com", Backend: Auto, VNI: 1, Port: 8472,
		Underlay: []Underlay{
			{Addr: netip.MustParsePrefix("198.18.1.11/24"), Dev: "uplink0", MTU: 1500},
			{Addr: netip.MustParsePrefix("fd00:99::11/64"), Dev: "uplink0", MTU: 1500},
		},
	}
}

func build(tb testing.TB, leases []cluster.Lease) *Map {
	m := NewMap()
	m.SetSelf(bigSelf())
	for _, l := range leases {
		m.SetNode(l.Node, true)
		m.SetLease(l)
	}
	if u := m.Updates(); len(u.Routes) != len(leases) || len(u.FDB) != peers-1 {
		tb.Fatalf("%d routes and %d FDB entries", len(u.Routes), len(u.FDB))
	}
	return m
}

// TestRetainedMemory: what a Map keeps of 10,000 leases.
func TestRetainedMemory(t *testing.T) {
	const limit = 12 << 20
	leases := bigCluster()
	before := heap()
	m := build(t, leases)
	kept := heap() - before
	runtime.KeepAlive(m)
	runtime.KeepAlive(leases)
	t.Logf("%.1f MiB", float64(kept)/(1<<20))
	if kept > limit {
		t.Errorf("%d bytes for %d leases, want at most %d", kept, len(leases), limit)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// BenchmarkBuild: a whole cluster from nothing.
func BenchmarkBuild(b *testing.B) {
	leases := bigCluster()
	for b.Loop() {
		build(b, leases)
	}
}

// BenchmarkChange: one lease among 10,000 changes.
func BenchmarkChange(b *testing.B) {
	block := netip.MustParsePrefix("10.70.5.0/24")
	at := func(segment byte) cluster.Lease {
		l := bigLease(6<<8|5, block, segment)
		l.Created++ // it decides where frames for its node go
		return l
	}
	move := [2]func(*Map){
		func(m *Map) { m.SetLease(at(2)) },
		func(m *Map) { m.SetLease(at(1)) },
	}
	leave := [2]func(*Map){
		func(m *Map) { m.DeleteLease(cluster.LeaseName(block)) },
		func(m *Map) { m.SetLease(at(1)) },
	}
	pair := bigLease(1, netip.MustParsePrefix("10.71.0.0/23"), 1)
	garbage := bigLease(peers+1, netip.MustParsePrefix("10.0.0.0/8"), 1)
	stray := bigLease(peers+1, netip.MustParsePrefix("10.99.0.0/24"), 1)
	stray.Addresses = []netip.Addr{netip.MustParseAddr("10.71.0.7")}
	segments := bigLease(peers+1, netip.MustParsePrefix("172.16.0.0/12"), 1)
	segments.Addresses = nil
	for _, bb := range []struct {
		name    string
		extra   []cluster.Lease
		changes [2]func(*Map)
	}{
		{"another address", nil, move},
		{"gone and back", nil, leave},
		{"while two others overlap", []cluster.Lease{pair}, move},
		{"while one overlaps all", []cluster.Lease{garbage}, move},
		{"while a node address lies in a lease", []cluster.Lease{stray}, move},
		{"while one contains all node addresses", []cluster.Lease{segments}, move},
	} {
		b.Run(bb.name, func(b *testing.B) {
			m := build(b, bigCluster())
			for _, l := range bb.extra {
				m.SetNode(l.Node, true)
				m.SetLease(l)
			}
			m.SetLease(at(1))
			m.Updates()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				bb.changes[i%2](m)
				if u := m.Updates(); len(u.Routes)+len(u.FDB) == 0 {
					b.Fatal("nothing changed")
				}
				i++
			}
		})
	}
}

// BenchmarkReach: a view of all leases.
func BenchmarkReach(b *testing.B) {
	m := build(b, bigCluster())
	for b.Loop() {
		m.Reach()
	}
}
