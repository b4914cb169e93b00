// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"weft.dev/weft/internal/lab"
	"weft.dev/weft/internal/lab/probe"
)

// TestBackends changes configuration and pools of three nodes on one segment
// while their pods talk.
func TestBackends(t *testing.T) {
	t.Parallel()
	play(t, lab.Spec{Name: "meshone", Nodes: 3, Segments: 1}, []scenario{
		{"backend changes", backendChanges},
		{"MTU changes", mtuChanges},
		{"masquerading", masquerading},
		{"pools change", poolsChange},
		{"the pool goes", poolGoes},
		{"podCIDRs", podCIDRs},
	}...)
}

// chatter is large transfers between pods, one after another.
type chatter struct {
	end   chan struct{}
	wait  sync.WaitGroup
	said  int
	fault error
}

// chat keeps connections busy until the chatter is stopped.
func (m *mesh) chat(all []*dialogue) *chatter {
	c := &chatter{end: make(chan struct{})}
	c.wait.Go(func() {
		for {
			for _, d := range all {
				select {
				case <-c.end:
					return
				default:
				}
				if c.fault = d.say(256<<10, bound); c.fault != nil {
					return
				}
				c.said++
			}
		}
	})
	m.Cleanup(func() { c.stop() })
	return c
}

func (c *chatter) stop() {
	select {
	case <-c.end:
	default:
		close(c.end)
	}
	c.wait.Wait()
}

// largest verifies that the largest packets that a pod may send arrive, without
// being cut, and that pods have the MTU that they should.
func (m *mesh) largest(from, to string) {
	m.Helper()
	mtu := m.wantPodMTU(m.nodes[m.pods[from].Node])
	for _, pod := range []string{from, to} {
		m.eventually(fmt.Sprintf("pod %s has MTU %d", pod, mtu), bound, func() error {
			if has := m.do(pod, "ip", "-o", "link", "show", "dev", "eth0"); !strings.Contains(has, fmt.Sprintf(" mtu %d ", mtu)) {
				return fmt.Errorf("it has %s", has)
			}
			return nil
		})
	}
	// What a pod learned of a smaller MTU on the way, by ICMP while it was
	// changing, it keeps for ten minutes.
	m.all(from, "ip -4 route flush cache", "ip -6 route flush cache")
	for _, ipv4 := range []bool{true, false} {
		header := 28
		if !ipv4 {
			header = 48
		}
		to := m.addressOf(to, ipv4).String()
		ping := func() error {
			_, err := m.run(from, "ping", "-n", "-c", "1", "-W", "1", "-M", "do", "-s", fmt.Sprint(mtu-header), to)
			return err
		}
		m.eventually(fmt.Sprintf("a packet of %d bytes from %s arrives at %s", mtu, from, to), bound, ping)
	}
}

// setBackend changes all agents' backend.
func (m *mesh) setBackend(backend string) {
	m.Helper()
	m.backend = backend
	m.configure(func(c map[string]any) { network(c)["backend"] = map[string]any{"type": backend} }, m.nodeNames()...)
}

func backendChanges(m *mesh) {
	talks := append(m.dialogues("p1", "p2"), m.dialogues("p3", "p1")...)
	busy := m.chat(talks)
	for _, backend := range []string{"vxlan", "native", "auto"} {
		m.setBackend(backend)
		m.converged("backend " + backend)
		m.largest("p1", "p2")
		m.addPod("q"+backend, "node2")
	}
	m.converged("all backends")
	busy.stop()
	m.Logf("%d transfers meanwhile", busy.said)
	if busy.fault != nil {
		m.Errorf("transfers while the backend changed: %v", busy.fault)
	}
	for _, backend := range []string{"vxlan", "native", "auto"} {
		m.deletePod("q" + backend)
	}
}

// setUplinkMTU changes the MTU of all uplinks, at both ends.
func (m *mesh) setUplinkMTU(mtu int) {
	m.Helper()
	m.mtu = mtu
	for _, n := range m.nodeNames() {
		m.all(lab.OutsideName, fmt.Sprintf("ip link set %s mtu %d", n, mtu))
		m.all(n, fmt.Sprintf("ip link set %s mtu %d", lab.UplinkName, mtu))
	}
}

func mtuChanges(m *mesh) {
	talks := append(m.dialogues("p1", "p2"), m.dialogues("p3", "p1")...)
	busy := m.chat(talks)
	for _, mtu := range []int{1400, 9000, 1500} {
		m.setUplinkMTU(mtu)
		m.converged(fmt.Sprintf("MTU %d of the uplinks", mtu))
		m.largest("p1", "p2")
	}
	for _, mtu := range []int{1300, 0} {
		m.podMTU = mtu
		m.configure(func(c map[string]any) { network(c)["mtu"] = mtu }, m.nodeNames()...)
		m.converged(fmt.Sprintf("MTU %d of pods", mtu))
		m.largest("p3", "p1")
	}
	busy.stop()
	m.Logf("%d transfers meanwhile", busy.said)
	if busy.fault != nil {
		m.Errorf("transfers while the MTU changed: %v", busy.fault)
	}
}

// seenAs asks the outside as whom it sees a pod.
func (m *mesh) seenAs(pod string, want netip.Addr) {
	m.Helper()
	outside := netip.MustParseAddr("203.0.113.1")
	if !want.Is4() {
		outside = netip.MustParseAddr("2001:db8:113::1")
	}
	var server *probe.Server
	m.must(m.in(lab.OutsideName, func() (err error) {
		server, err = probe.Listen(lab.OutsideName, 0)
		return err
	}))
	ctx, cancel := context.WithCancel(m.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Run(ctx) }) // whom it does not answer says so
	defer serving.Wait()
	defer cancel()
	m.eventually(fmt.Sprintf("the outside sees %s as %s", pod, want), bound, func() error {
		return m.in(pod, func() error {
			once, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			answer, err := probe.Ask(once, "tcp", netip.AddrPortFrom(outside, server.Port()))
			if err == nil && answer.Seen.Addr() != want {
				return fmt.Errorf("seen as %s", answer.Seen)
			}
			return err
		})
	})
}

func masquerading(m *mesh) {
	node1 := m.nodes["node1"]
	for i, ipv4 := range []bool{true, false} {
		pod, node := m.addressOf("p1", ipv4), node1.Addrs[i].Addr()
		m.seenAs("p1", node)
		// The outside must know the way back to a pod that comes as itself.
		m.all(lab.OutsideName, fmt.Sprintf("ip route add %s via %s", m.leaseOf("node1", ipv4), node))
		m.exclude = append(m.exclude, netip.MustParsePrefix([]string{"203.0.113.1/32", "2001:db8:113::1/128"}[i]))
		m.configure(func(c map[string]any) { network(c)["masqueradeExclude"] = m.exclude }, m.nodeNames()...)
		m.seenAs("p1", pod)
	}
	m.eventually("kernels after masqueradeExclude", bound, m.checkKernels)
	m.exclude = nil
	m.configure(func(c map[string]any) { delete(network(c), "masqueradeExclude") }, m.nodeNames()...)
	m.converged("masqueradeExclude went")

	file := m.path("registry", "pool.yaml")
	before, err := os.ReadFile(file)
	m.must(err)
	m.write(file, strings.Replace(string(before), "spec:\n", "spec:\n  masquerade: false\n", 1))
	m.eventually("kernels after a pool without masquerading", bound, m.checkKernels)
	for _, ipv4 := range []bool{true, false} {
		m.seenAs("p1", m.addressOf("p1", ipv4))
	}
	m.write(file, string(before))
	for _, ipv4 := range []bool{true, false} {
		m.all(lab.OutsideName, "ip route del "+m.leaseOf("node1", ipv4).String())
	}
	m.converged("masquerading came back")
}

func poolsChange(m *mesh) {
	flows := m.flows("p1", "p2")
	second := m.path("registry", "pool2.yaml")
	m.write(second, poolText("second", 97, "ipv4: {cidr: 10.77.0.0/16, blockSize: 25}", "ipv6: {cidr: 'fd00:77::/56'}"))
	m.converged("a second pool")
	m.write(second, poolText("second", 97, "ipv4: {cidr: 10.78.0.0/16}", "masquerade: false"))
	m.converged("the second pool changed")
	m.must(os.Remove(second))
	m.converged("the second pool went")
	m.lossless("pools change", nil, flows...)
}

// poolGoes removes the pool that all blocks are of, and puts one beside it that
// overlaps and has the lesser name. Pods must not notice either.
func poolGoes(m *mesh) {
	flows := append(m.flows("p1", "p2"), m.flows("p1", "p3")...)
	pool := m.path("registry", "pool.yaml")
	text, err := os.ReadFile(pool)
	m.must(err)
	m.must(os.Remove(pool))
	m.eventually("node1 has no pool", bound, func() error {
		rows, err := m.status("node1")
		for _, r := range rows {
			if r.Subsystem == "pools" && strings.Contains(r.Detail, "no IPPool") {
				return nil
			}
		}
		return fmt.Errorf("it says %v, %w", rows, err)
	})
	m.must(m.checkPairs())
	m.write(pool, string(text))
	m.converged("the pool came back")
	canary := m.path("registry", "canary.yaml")
	m.write(canary, strings.Replace(poolText("canary", 98, "ipv4: {cidr: 10.42.255.0/24, blockSize: 26}"),
		`, creationTimestamp: "2098-01-01T00:00:00Z"`, "", 1)) // as people write it
	m.problem("node1", "rejected", "IPPool canary", "which is in use")
	m.must(m.checkPairs())
	m.must(os.Remove(canary))
	m.converged("the pool that overlapped went")
	m.lossless("the pool goes", nil, flows...)
}

// podCIDRs has the cluster assign a node its blocks, while it holds others.
func podCIDRs(m *mesh) {
	file := m.path("registry", "nodes", "node3.yaml")
	before, err := os.ReadFile(file)
	m.must(err)
	old := m.leaseOf("node3", true)
	m.write(file, string(before)+"spec: {podCIDRs: [10.42.251.0/24, 'fd00:42:0:f0f0::/64']}\n")
	m.eventually("the assigned blocks are leased", bound, func() error {
		b, err := m.believe()
		if err == nil && len(b.leasesOf("node3")) != 4 { // p3 has addresses of the old ones
			err = fmt.Errorf("node3 holds %d leases, want 4", len(b.leasesOf("node3")))
		}
		return err
	})
	p := m.addPod("q3", "node3")
	if want := netip.MustParsePrefix("10.42.251.0/24"); !want.Contains(p.Addresses[0].Addr()) {
		m.Errorf("pod %s has %s, want one of %s", p.Name, p.Addresses[0], want)
	}
	m.converged("podCIDRs were set")
	m.deletePod("p3")
	m.eventually("the old blocks are given back", bound, func() error {
		b, err := m.believe()
		if err == nil && len(b.leasesOf("node3")) != 2 {
			err = fmt.Errorf("node3 holds %d leases, want 2; one was %s", len(b.leasesOf("node3")), old)
		}
		return err
	})
	m.addPod("p3", "node3")
	m.converged("old blocks were given back")
	m.write(file, string(before))
	m.deletePod("p3")
	m.deletePod("q3")
	m.converged("podCIDRs went")
	m.addPod("p3", "node3")
	m.converged("a pod came after podCIDRs went")
}
