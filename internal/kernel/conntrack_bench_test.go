// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"testing"

	"weft.dev/weft/internal/core/attach"
)

// BenchmarkHostPorts is an attachment with ports of the host, on a node that
// tracks connections: in a namespace without any the kernel walks no table.
func BenchmarkHostPorts(b *testing.B) {
	udp := port(attach.UDP, "", 5353, 53)
	for _, c := range []struct {
		name  string
		ports []attach.Port
		addrs []string
	}{
		{"none", nil, families["dual"]},
		{"tcp", []attach.Port{port(attach.TCP, "", 8080, 80)}, families["dual"]},
		{"udp ipv4", []attach.Port{udp}, families["ipv4"]},
		{"udp dual", []attach.Port{udp}, families["dual"]},
		{"three udp dual", []attach.Port{udp, port(attach.UDP, "", 5354, 54), port(attach.UDP, "", 5355, 55)}, families["dual"]},
	} {
		attachment := func(b *testing.B) (*world, *pod) {
			w := newWorld(b)
			w.mapped([]attach.Port{port(attach.TCP, "", 9090, 80)}, "10.42.3.9") // keeps the table
			w.track(flowCase{orig: "198.18.0.1:4000>198.18.0.2:5353", reply: "198.18.0.2:5353>198.18.0.1:4000"})
			p := w.newPod(c.addrs...)
			w.mapOnto(p, c.ports)
			return w, p
		}
		b.Run("add/"+c.name, func(b *testing.B) {
			w, p := attachment(b)
			for b.Loop() {
				w.attach(p)
				b.StopTimer()
				if err := w.h.Detach(p.plan.HostIfname); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
		b.Run("del/"+c.name, func(b *testing.B) {
			w, p := attachment(b)
			for b.Loop() {
				b.StopTimer()
				w.attach(p)
				b.StartTimer()
				if err := w.h.Detach(p.plan.HostIfname); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
