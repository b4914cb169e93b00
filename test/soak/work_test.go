// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/test/crash/node"
)

const (
	concurrency = 16
	backlog     = 8 // pods of each worker that live on while it goes on
	network     = "net"

	// Few enough addresses that each is used again and again, before its
	// cool-down is over, and that what is remembered of releases is full
	// before the agent's memory is measured.
	ranges       = `[[{"subnet":"10.42.0.0/22"}],[{"subnet":"fd42::/118"}]]`
	routes       = `[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`
	agentNetwork = `{"ranges":` + ranges + `,"routes":` + routes + `}`

	// longestLife is how long after its start a plugin is killed at most: a
	// call takes some milliseconds, more when sixteen run at once.
	longestLife = 25 * time.Millisecond
	// tryAgain is the code of an error that is said to pass (CNI 1.1.0,
	// "Well-known error codes").
	tryAgain = 11
)

// soak is one run: a node, what is known about it, and what may happen.
type soak struct {
	*testing.T
	n     *node.Node
	m     *model
	conf  string
	seed  uint64
	total int
	next  atomic.Int64
	began time.Time
	// agentDies is called after every some hundred pairs; nil: never.
	agentDies func()
	gcEvery   int64
}

func thickConfig(n *node.Node) string {
	return fmt.Sprintf(`"stateDir":%q,"socket":%q`, n.StateDir, n.Socket)
}

func thinConfig(n *node.Node) string {
	return fmt.Sprintf(`"stateDir":%q,"ipam":{"type":"weft-ipam","ranges":%s,"routes":%s}`, n.StateDir, ranges, routes)
}

func newSoak(t *testing.T, n *node.Node, conf string, total int) *soak {
	t.Helper()
	return &soak{T: t, n: n, m: newModel(), conf: conf, seed: seed(t), total: total, began: time.Now(), gcEvery: 250}
}

func (s *soak) config(extra string) string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":%q,"type":"weft-cni","repeatAdd":"return",%s%s}`, network, s.conf, extra)
}

// run works until so many pairs of all are done, sixteen at a time. When it
// returns nothing is under way.
func (s *soak) run(until int) {
	s.Helper()
	stop := make(chan struct{})
	var watching, working sync.WaitGroup
	watching.Go(func() { s.watch(stop) })
	for range concurrency {
		working.Go(func() {
			var alive []func() // each ends a pod, oldest first
			for !s.Failed() {
				i := s.next.Add(1)
				if i > int64(until) {
					s.next.Add(-1)
					break
				}
				alive = append(alive, s.pair(i))
				if len(alive) > backlog {
					alive[0]()
					alive = alive[1:]
				}
			}
			for _, end := range alive {
				end()
			}
		})
	}
	working.Wait()
	close(stop)
	watching.Wait()
	if s.Failed() {
		s.FailNow()
	}
}

// pair is the life of one pod. It returns what ends it.
func (s *soak) pair(i int64) (end func()) {
	r := rand.New(rand.NewPCG(s.seed, uint64(i)))
	k := attach.Key{Network: network, ContainerID: fmt.Sprintf("c%d", i), Ifname: "eth0"}
	sb, err := s.n.NewSandbox()
	if err != nil {
		s.Error(err)
		return func() {}
	}
	s.m.begin(k)
	attached := s.attach(r, k, sb)
	return func() {
		if attached {
			s.detach(r, k, sb)
		}
		s.every(i)
	}
}

// attach calls ADD until it succeeds, and reports whether DEL shall be called;
// otherwise the sandbox is gone.
func (s *soak) attach(r *rand.Rand, k attach.Key, sb *node.Sandbox) bool {
	if r.IntN(100) < 5 {
		o := s.call("ADD", k, sb, s.killAfter(r))
		s.m.add(func(c *counts) { c.addKills++ })
		if o.OK() && !s.acknowledged(k, o) {
			return false
		}
		switch r.IntN(3) {
		case 0:
			return true // DEL instead
		case 1:
			s.abandon(k, sb)
			return false
		}
	}
	o := s.persist("ADD", k, sb)
	if !o.OK() || !s.acknowledged(k, o) {
		return false
	}
	if r.IntN(100) < 5 {
		s.m.add(func(c *counts) { c.repeatedAdds++ })
		if o := s.persist("ADD", k, sb); !o.OK() || !s.acknowledged(k, o) {
			return false
		}
	}
	if r.IntN(100) < 4 {
		s.abandon(k, sb)
		return false
	}
	return true
}

// detach calls DEL until it succeeds.
func (s *soak) detach(r *rand.Rand, k attach.Key, sb *node.Sandbox) {
	s.m.leaving(k)
	if r.IntN(100) < 5 {
		s.call("DEL", k, sb, s.killAfter(r))
		s.m.add(func(c *counts) { c.delKills++ })
	}
	early := r.IntN(100) < 20 // some runtimes end the sandbox first
	if early {
		s.end(sb)
	}
	s.persist("DEL", k, sb)
	if r.IntN(100) < 5 {
		s.m.add(func(c *counts) { c.repeatedDels++ })
		s.persist("DEL", k, sb)
	}
	s.m.ended(k)
	if !early {
		s.end(sb)
	}
}

// abandon lets the sandbox go without DEL: the runtime lost its memory of it.
func (s *soak) abandon(k attach.Key, sb *node.Sandbox) {
	s.m.leaving(k)
	s.end(sb)
	s.m.ended(k)
	s.m.add(func(c *counts) { c.abandoned++ })
}

func (s *soak) end(sb *node.Sandbox) {
	if err := sb.Delete(); err != nil {
		s.Error(err)
	}
}

func (s *soak) acknowledged(k attach.Key, o node.Outcome) bool {
	addrs, err := o.Addresses()
	if err == nil && len(addrs) != 2 {
		err = fmt.Errorf("%s got %v, want an address of each family", k, addrs)
	}
	if err == nil {
		err = s.m.attached(k, addrs)
	}
	if err != nil {
		s.Error(err)
	}
	return err == nil
}

func (s *soak) killAfter(r *rand.Rand) time.Duration {
	return time.Duration(r.Int64N(int64(longestLife)))
}

// call executes the plugin once; with a life above zero it is killed after it.
func (s *soak) call(verb string, k attach.Key, sb *node.Sandbox, life time.Duration) node.Outcome {
	running, err := s.n.Start(node.Call{Verb: verb, ContainerID: k.ContainerID, Netns: sb.Path, Ifname: k.Ifname, Config: s.config("")})
	if err != nil {
		s.Error(err)
		return node.Outcome{Code: -1}
	}
	if life > 0 {
		kill := time.AfterFunc(life, running.Kill)
		defer kill.Stop()
	}
	return running.Wait()
}

// persist repeats a call for as long as it is told to try again: the agent is
// down at times. Any other failure fails the test.
func (s *soak) persist(verb string, k attach.Key, sb *node.Sandbox) node.Outcome {
	var o node.Outcome
	done := node.Until(node.Limit, func() bool {
		o = s.call(verb, k, sb, 0)
		if o.CNICode == tryAgain {
			s.m.add(func(c *counts) { c.tryAgain++ })
		}
		return o.CNICode != tryAgain
	})
	if !done || !o.OK() {
		s.Errorf("%s does not succeed: %s", verb, o)
	}
	return o
}

// every does what is due after some number of pairs.
func (s *soak) every(i int64) {
	s.m.add(func(c *counts) { c.pairs++ })
	if i%s.gcEvery == 0 {
		s.gc(s.m.list())
	}
	if i%250 == 0 && s.agentDies != nil {
		s.m.add(func(c *counts) { c.agentKills++ })
		s.agentDies()
	}
	if i%1000 == 0 {
		fmt.Printf("soak: %s: %d of %d pairs in %s\n", s.Name(), i, s.total, time.Since(s.began).Round(100*time.Millisecond))
	}
}

// gc calls the GC verb with the attachments that the runtime knows.
func (s *soak) gc(keys []attach.Key) {
	type item struct {
		ContainerID string `json:"containerID"`
		Ifname      string `json:"ifname"`
	}
	items := make([]item, 0, len(keys))
	for _, k := range keys {
		items = append(items, item{k.ContainerID, k.Ifname})
	}
	list, err := json.Marshal(items)
	if err != nil {
		s.Error(err)
		return
	}
	s.m.add(func(c *counts) { c.gcs++ })
	var o node.Outcome
	done := node.Until(node.Limit, func() bool {
		o, err = s.n.Call(node.Call{Verb: "GC", Config: s.config(`,"cni.dev/valid-attachments":` + string(list))})
		return err != nil || o.CNICode != tryAgain
	})
	if err != nil || !done || !o.OK() {
		s.Errorf("GC does not succeed: %v %s", err, o)
	}
	if o.Signal == syscall.SIGKILL {
		s.Errorf("GC hung: %s", o)
	}
}

// watch compares the host's routes with the model, again and again.
func (s *soak) watch(stop <-chan struct{}) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		before := s.m.holders()
		led, err := s.n.HostRoutes()
		if err != nil {
			s.Error(err)
			return
		}
		for a := range before {
			if _, any := led[a]; any {
				continue
			}
			if name := s.n.LedTo(a); name != "" {
				led[a] = name
			}
		}
		s.m.add(func(c *counts) { c.judged += len(before) })
		if found := disagreements(before, s.m.holders(), led); len(found) > 0 {
			s.Error(strings.Join(found, "\n"))
		}
		s.m.add(func(c *counts) { c.looks++ })
	}
}
