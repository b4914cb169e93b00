// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"net/netip"
	"testing"
)

// A hostPort with a hostIP answers at that address of the node and at no other,
// so that two pods of one node can have the same port at two addresses.
func testHostIP(t *testing.T, s *suite) {
	ns := s.namespace(t)
	const port = 18110
	node := s.Nodes[0]
	names := []string{"four", "six"}
	for f, name := range names {
		p := withPort(server(ns, name, node.Name), port)
		for i := range p.Spec.Containers[0].Ports {
			p.Spec.Containers[0].Ports[i].HostIP = node.Addresses[f].String()
		}
		s.create(t, p)
	}
	for f, name := range names {
		s.ready(t, ns, name, "")
		target := netip.AddrPortFrom(node.Addresses[f], port)
		for _, from := range s.Nodes[:2] {
			if err := errors.Join(answers(name)(askHTTP(t.Context(), from, target, "hostname")), answers(name)(askUDP(from, target, "hostname"))); err != nil {
				t.Error(err)
			}
		}
	}
	if got, err := askHTTP(t.Context(), node, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), "hostname"); err == nil {
		t.Errorf("127.0.0.1 answers %q, want nobody", got)
	}
}
