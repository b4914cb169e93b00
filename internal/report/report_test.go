// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"
)

var full = Report{
	Subsystems: []Subsystem{
		{
			Subsystem: "kernel routes", State: Bad, Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Pending: 2, Detail: "2 of 7",
			LastError: "boom", LastErrorAt: time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC),
		},
		{Subsystem: "registry", State: Idle, Detail: "none\nat all"},
	},
	Rejected: []Rejection{{Object: "IPPool late", Reason: "overlaps"}},
	Nodes: []Node{{
		Name: "node2", Addresses: []netip.Addr{netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("fd00::2")},
		Subnets: []netip.Prefix{netip.MustParsePrefix("10.42.2.0/24")}, Way: "vxlan", Devices: []string{"weft-vxlan"}, VTEP: "02:00:00:00:00:01", State: "ok",
	}},
	Leases: []Lease{
		{
			Name: "10-42-2-0-24", Subnet: netip.MustParsePrefix("10.42.2.0/24"), Pool: "default", Node: "node2", Way: "vxlan",
			Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Age: "1m0s", State: "ok",
		},
		{
			Name: "own", Subnet: netip.MustParsePrefix("fd00:42:0:3::/64"), Node: "node1", Way: "local",
			Use: &Use{Size: 1<<64 - 1, Free: 0}, State: "in use here",
		},
	},
	Routes: []Route{
		{
			Destination: netip.MustParsePrefix("10.42.2.0/24"), Gateway: netip.MustParseAddr("10.42.2.0"), Dev: "weft-vxlan",
			Kind: "vxlan", State: "in sync", Origin: "SubnetLease 10-42-2-0-24 of node2",
		},
		{Destination: netip.MustParsePrefix("10.42.1.0/24"), Kind: "unreachable", State: "in sync", Origin: "SubnetLease 10-42-1-0-24 of node1"},
	},
}

func TestReportTravelsWhole(t *testing.T) {
	raw, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(raw, &back); err != nil || !reflect.DeepEqual(back, full) {
		t.Errorf("%v: %+v from %s", err, back, raw)
	}
}

func TestCells(t *testing.T) {
	check := func(header, got []string, want ...string) {
		t.Helper()
		if !reflect.DeepEqual(got, want) || len(header) != len(got) {
			t.Errorf("%v: %q, want %q", header, got, want)
		}
	}
	s, n, l, r := full.Subsystems, full.Nodes, full.Leases, full.Routes
	check(s[0].Header(), s[0].Cells(), "kernel routes", "problem", "2026-01-02T03:04:05Z", "2", "2 of 7; last error 2026-01-02T03:04:06Z: boom")
	check(s[1].Header(), s[1].Cells(), "registry", "idle", "", "", "none; at all")
	check(n[0].Header(), n[0].Cells(), "node2", "198.18.0.2,fd00::2", "10.42.2.0/24", "vxlan", "weft-vxlan", "02:00:00:00:00:01", "ok")
	check(l[0].Header(), l[0].Cells(), "10-42-2-0-24", "10.42.2.0/24", "default", "node2", "vxlan", "1m0s", "", "ok")
	check(l[1].Header(), l[1].Cells(), "own", "fd00:42:0:3::/64", "", "node1", "local", "", "0 of plenty", "in use here")
	check(r[0].Header(), r[0].Cells(), "10.42.2.0/24", "10.42.2.0", "weft-vxlan", "vxlan", "in sync", "SubnetLease 10-42-2-0-24 of node2")
	check(r[1].Header(), r[1].Cells(), "10.42.1.0/24", "", "", "unreachable", "in sync", "SubnetLease 10-42-1-0-24 of node1")
}

func TestSettled(t *testing.T) {
	for state, want := range map[State]bool{Good: true, Idle: true, Pending: false, Bad: false} {
		if got := (Subsystem{State: state}).Settled(); got != want {
			t.Errorf("%s: %v", state, got)
		}
	}
}
