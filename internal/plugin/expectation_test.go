// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"net/netip"
	"testing"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
)

func checkPlan(t *testing.T) attach.Plan {
	t.Helper()
	p, err := attach.NewPlan(attach.Spec{
		Key: attach.Key{Network: "n", ContainerID: "c", Ifname: "eth0"}, Instance: "/s", MTU: 1500,
		Addresses: []attach.Address{{Addr: netip.MustParseAddr("10.0.0.2"), Subnet: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1")}},
		Routes:    []attach.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestExpectation(t *testing.T) {
	inside, other := 1, 2
	mac := checkPlan(t).MAC.String()
	base := func() *cni.Result {
		return &cni.Result{
			Interfaces: []cni.Interface{{Name: "weftx"}, {Name: "eth0", Sandbox: "/n", MAC: mac}, {Name: "net1", Sandbox: "/n"}},
			IPs:        []cni.IP{{Interface: &inside, Address: netip.MustParsePrefix("10.0.0.2/32")}},
			Routes:     []attach.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}},
		}
	}
	cases := []struct {
		name   string
		change func(*cni.Result)
		want   string // addresses, routes, neighbours in the sandbox, whether MACs are compared
	}{
		{"as made", func(*cni.Result) {}, "[10.0.0.2/32] 1 1 true"},
		{"route taken away", func(r *cni.Result) { r.Routes = nil }, "[10.0.0.2/32] 0 1 true"},
		{"address taken away", func(r *cni.Result) { r.IPs = nil }, "[] 1 1 true"},
		{"address of ours added", func(r *cni.Result) {
			r.IPs = append(r.IPs, cni.IP{Interface: &inside, Address: netip.MustParsePrefix("10.9.0.1/24")})
		}, "[10.0.0.2/32 10.9.0.1/24] 1 1 true"},
		{"address of another interface", func(r *cni.Result) {
			r.IPs = append(r.IPs, cni.IP{Interface: &other, Address: netip.MustParsePrefix("10.9.0.1/24")})
		}, "[10.0.0.2/32] 1 1 true"},
		{"address of nobody in particular", func(r *cni.Result) {
			r.IPs = append(r.IPs, cni.IP{Address: netip.MustParsePrefix("10.9.0.1/24")})
		}, "[10.0.0.2/32] 1 1 true"},
		{"another MAC", func(r *cni.Result) { r.Interfaces[1].MAC = "02:00:00:00:00:01" }, "[10.0.0.2/32] 1 0 true"},
		{"no MAC", func(r *cni.Result) { r.Interfaces[1].MAC = "" }, "[10.0.0.2/32] 1 1 false"},
		{"no interfaces, as in old versions", func(r *cni.Result) { r.Interfaces = nil; r.IPs[0].Interface = nil }, "[10.0.0.2/32] 1 1 false"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			prev := base()
			c.change(prev)
			expect, cerr := expectation(cni.Call{Ifname: "eth0"}, prev)
			if cerr != nil {
				t.Fatal(cerr)
			}
			p, options := expect(checkPlan(t))
			if got := fmt.Sprint(p.Addresses, len(p.Routes), len(p.Neighbours), options.MAC); got != c.want {
				t.Errorf("expected of the kernel: %s, want %s", got, c.want)
			}
		})
	}
	if _, cerr := expectation(cni.Call{Ifname: "eth7"}, base()); cerr == nil || cerr.Code != cni.CodeConfig {
		t.Errorf("a result without our interface: %v", cerr)
	}
}
