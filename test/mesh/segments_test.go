// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"weft.dev/weft/internal/lab"
)

// scenario is one disturbance and what must come of it.
type scenario struct {
	name string
	run  func(m *mesh)
}

// play runs scenarios one after another in one lab. After one that did not come
// to its end the lab says nothing about the next; then there is another.
func play(t *testing.T, s lab.Spec, scenarios ...scenario) {
	m := up(t, s)
	m.converged("the start")
	for i, one := range scenarios {
		good := t.Run(one.name, func(t *testing.T) {
			outer := m.T
			m.T = t
			defer func() { m.T = outer }()
			start := time.Now()
			one.run(m)
			m.Logf("%q took %d ms", one.name, time.Since(start).Milliseconds())
		})
		if !good && i < len(scenarios)-1 {
			s.Name += "x"
			m = up(t, s)
		}
	}
}

// TestSegments disturbs four nodes on two segments.
func TestSegments(t *testing.T) {
	t.Parallel()
	play(t, lab.Spec{Name: "meshtwo", Nodes: 4, Segments: 2}, []scenario{
		{"partition", partition},
		{"agents killed under load", killedUnderLoad},
		{"node removed while its peers' agents are down", removedUnseen},
		{"devices tampered with", tamperedDevices},
		{"a device of ours is somebody's", foreignDevice},
		{"routes tampered with", tamperedRoutes},
		{"all routes flushed", flushedRoutes},
		{"a foreign route in the way", foreignRoute},
		{"a foreign route instead of ours", foreignRouteInstead},
		{"an uplink goes down and up", bouncingUplink},
		{"a node's IPv6 address changes", movingIPv6},
		{"a node's IPv4 address changes", movingIPv4},
		{"both addresses of a node change", movingBoth},
		{"registry away", registryAway},
		{"leases are deleted", lostLeases},
		{"garbage", garbage},
		{"a lease from the future", leaseFromTheFuture},
		{"a lease of the network between the nodes", leaseOfTheUnderlay},
		{"a lease of one segment", leaseOfASegment},
	}...)
}

func partition(m *mesh) {
	m.must(m.host.CutLink(m.name, "node2"))
	if _, err := m.dialogue("p1", "p2", true, 300*time.Millisecond); err == nil {
		m.Fatal("the link of node2 is cut, and p1 reaches p2")
	}
	m.addPod("q1", "node1")
	m.addPod("q2", "node2")
	m.deletePod("q1")
	five := m.addNode(2)
	m.addPod("p5", five)
	m.removeNode("node4")
	m.must(m.host.RestoreLink(m.name, "node2"))
	m.converged("a partition")
	m.deletePod("q2")
}

// seed returns the seed of a scenario's random decisions.
func (m *mesh) seed() uint64 {
	m.Helper()
	s := uint64(time.Now().UnixNano() & 0xffffff)
	if text := os.Getenv("WEFT_MESH_SEED"); text != "" {
		var err error
		s, err = strconv.ParseUint(text, 10, 64)
		m.must(err)
	}
	m.Logf("WEFT_MESH_SEED=%d", s)
	return s
}

func killedUnderLoad(m *mesh) {
	random := rand.New(rand.NewPCG(m.seed(), 1))
	flows := append(m.flows("p1", "p2"), m.flows("p1", "p3")...)
	talks := append(m.dialogues("p1", "p2"), m.dialogues("p1", "p3")...)
	m.eventually("every flow flows", bound, func() error {
		for _, f := range flows {
			if f.received() == 0 {
				return fmt.Errorf("nothing arrived of %s", f.name)
			}
		}
		return nil
	})
	ctx, cancel := context.WithCancel(m.Context())
	defer cancel()
	var load sync.WaitGroup
	nodes := m.nodeNames()
	var made, again int
	load.Go(func() { made, again = m.churn(ctx, rand.New(rand.NewPCG(random.Uint64(), 2)), nodes) })
	const kills = 30
	for range kills {
		node := nodes[random.IntN(len(nodes))]
		m.kill(node)
		m.pause(time.Duration(random.IntN(100)) * time.Millisecond)
		m.restart(node)
		m.pause(time.Duration(random.IntN(150)) * time.Millisecond)
	}
	cancel()
	load.Wait()
	m.Logf("%d kills; meanwhile %d pods came, and %d calls had to be repeated", kills, made, again)
	if made == 0 {
		m.Error("no pod came")
	}
	m.talk("connections after the kills", talks)
	m.lossless("agents killed", nil, flows...)
	m.converged("agents were killed")
	for _, n := range nodes {
		m.holds(n, 2) // so few pods are no reason to take further blocks
	}
}

// pause lets time pass for what runs beside.
func (m *mesh) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-m.Context().Done():
	}
}

// churn adds and deletes pods, until ctx ends. It leaves none behind. What fails
// because an agent was killed is repeated, as a runtime does.
func (m *mesh) churn(ctx context.Context, random *rand.Rand, nodes []string) (made, again int) {
	living := map[string]bool{}
	steady := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		name := fmt.Sprintf("c%d", random.IntN(6))
		if living[name] {
			again += m.goodbye(steady, name)
			delete(living, name)
			continue
		}
		_, err := m.host.AddPod(steady, m.name, lab.PodSpec{Name: name, Node: nodes[random.IntN(len(nodes))]})
		if err != nil {
			again += 1 + m.goodbye(steady, name)
			continue
		}
		made++
		living[name] = true
	}
	for name := range living {
		again += m.goodbye(steady, name)
	}
	return made, again
}

// goodbye deletes a pod, half made or not, and returns how often that failed.
func (m *mesh) goodbye(ctx context.Context, pod string) (failed int) {
	for start := time.Now(); ; failed++ {
		err := m.host.DeletePod(ctx, m.name, pod)
		if gone := (*lab.NoPodError)(nil); err == nil || errors.As(err, &gone) {
			return failed
		}
		if time.Since(start) > bound {
			m.Errorf("delete pod %s: %v", pod, err)
			return failed
		}
	}
}

func removedUnseen(m *mesh) {
	nodes := m.nodeNames()
	victim, others := nodes[len(nodes)-1], nodes[:len(nodes)-1]
	m.kill(others...)
	m.removeNode(victim)
	if have, err := m.observe(others[0]); err != nil || len(have) == 0 {
		m.Fatalf("%s, whose agent is down, holds %d objects: %v", others[0], len(have), err)
	}
	m.restart(others...)
	m.converged("agents came back after a node was removed")
	m.addPod("p4", m.addNode(2))
	m.converged("a node joined")
}
