// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"weft.dev/weft/internal/lab/probe"
)

// checksAtOnce bounds the pairs that Check tries at a time: each keeps a few
// threads and sockets busy, and one that stays silent takes seconds.
const checksAtOnce = 32

// Pair is what came of one pod talking to another, or to the outside, in one
// family.
type Pair struct {
	From   string     `json:"from"`
	To     string     `json:"to"`
	Family string     `json:"family"` // IPv4 or IPv6
	Source netip.Addr `json:"source"` // that To must see: the pod's, or outside its node's
	Target netip.Addr `json:"target"`
	ICMP   Reply      `json:"icmp"`
	TCP    Reply      `json:"tcp"`
	UDP    Reply      `json:"udp"`
}

// Reply is the outcome of one exchange.
type Reply struct {
	Millis float64 `json:"millis,omitempty"` // ICMP: the round-trip time
	Error  string  `json:"error,omitempty"`  // no answer, or the source was changed on the way
}

func (r Reply) String() string {
	switch {
	case r.Error != "":
		return oneLine(r.Error)
	case r.Millis > 0:
		return fmt.Sprintf("%.2f ms", r.Millis)
	}
	return OK
}

// OK reports whether all three exchanges went well.
func (p Pair) OK() bool { return p.ICMP.Error == "" && p.TCP.Error == "" && p.UDP.Error == "" }

// Header implements view.Row.
func (p Pair) Header() []string {
	return []string{"FROM", "TO", "FAMILY", "SOURCE", "TARGET", "ICMP", "TCP", "UDP"}
}

// Cells implements view.Row.
func (p Pair) Cells() []string {
	return []string{p.From, p.To, p.Family, p.Source.String(), p.Target.String(), p.ICMP.String(), p.TCP.String(), p.UDP.String()}
}

// Check has every pod talk to every other pod and to the outside, in each
// family that both have, by ICMP, TCP and UDP. The other side must see the
// pod's own address, the outside that of the pod's node. Pods that are half
// made are left out.
func (h Host) Check(ctx context.Context, name string) ([]Pair, error) {
	l, err := h.open(name, reading)
	if err != nil {
		return nil, err
	}
	defer l.close()
	pods, err := l.speakers()
	if err != nil {
		return nil, err
	}
	defer closeAll(pods)
	outside, err := l.outsideSpeaker()
	if err != nil {
		return nil, err
	}
	defer outside.close()

	listeners, err := serveAll(ctx, append(pods[:len(pods):len(pods)], outside))
	if err != nil {
		return nil, err
	}
	defer listeners.stop()
	var talks []talk
	for _, from := range pods {
		for _, to := range pods {
			if from.name != to.name {
				talks = append(talks, talksBetween(from, to, from.addrs)...)
			}
		}
		talks = append(talks, talksBetween(from, outside, from.abroad)...)
	}
	return listeners.run(ctx, talks), nil
}

// talk is a Pair to be.
type talk struct {
	from, to       speaker
	source, target netip.Addr
}

// talksBetween returns a talk for each family that both have. sources is whom
// the other must see.
func talksBetween(from, to speaker, sources []netip.Addr) []talk {
	var talks []talk
	for _, own := range families(from.addrs) {
		target, speaks := inFamilyOf(own, to.addrs)
		source, known := inFamilyOf(own, sources)
		if speaks && known {
			talks = append(talks, talk{from: from, to: to, source: source, target: target})
		}
	}
	return talks
}

// servers are the servers of Check, one per speaker.
type servers struct {
	ports map[string]uint16 // by the speaker's name
	end   context.CancelFunc
	wait  sync.WaitGroup
}

// serveAll starts a server for each speaker. It lasts until stop, in this
// process; its sockets are in the speaker's namespace.
func serveAll(ctx context.Context, all []speaker) (*servers, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &servers{ports: map[string]uint16{}, end: cancel}
	for _, one := range all {
		var server *probe.Server
		err := one.ns.Do(func() (err error) {
			server, err = probe.Listen(one.name, 0)
			return err
		})
		if err != nil {
			s.stop()
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
		s.ports[one.name] = server.Port()
		s.wait.Go(func() { _ = server.Run(ctx) }) // what it does not answer is an error of who asks
	}
	return s, nil
}

func (s *servers) stop() {
	s.end()
	s.wait.Wait()
}

// run returns the talks' outcomes, in their order.
func (s *servers) run(ctx context.Context, talks []talk) []Pair {
	pairs := make([]Pair, len(talks))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(checksAtOnce, len(talks)) {
		workers.Go(func() {
			for i := range next {
				pairs[i] = s.try(ctx, talks[i])
			}
		})
	}
	for i := range talks {
		next <- i
	}
	close(next)
	workers.Wait()
	return pairs
}

// try makes the three exchanges at once: one that fails takes seconds.
func (s *servers) try(ctx context.Context, t talk) Pair {
	p := Pair{
		From: t.from.name, To: t.to.name, Family: familyName(t.target),
		Source: t.source, Target: t.target,
	}
	var all sync.WaitGroup
	all.Go(func() { p.ICMP = t.ping(ctx) })
	all.Go(func() { p.TCP = t.ask(ctx, "tcp", s.ports[t.to.name]) })
	all.Go(func() { p.UDP = t.ask(ctx, "udp", s.ports[t.to.name]) })
	all.Wait()
	return p
}

func (t talk) ask(ctx context.Context, network string, port uint16) Reply {
	var answer probe.Answer
	err := t.from.ns.Do(func() (err error) {
		answer, err = probe.Ask(ctx, network, netip.AddrPortFrom(t.target, port))
		return err
	})
	if err == nil && answer.Server != t.to.name {
		err = fmt.Errorf("answered by %s", answer.Server)
	}
	return t.reply(0, answer.Seen.Addr(), err)
}

func (t talk) ping(ctx context.Context) Reply {
	mark := t.from.name + " to " + t.to.name
	var witness *probe.Witness
	err := t.to.ns.Do(func() (err error) {
		witness, err = probe.NewWitness(t.target)
		return err
	})
	if err != nil {
		return t.reply(0, netip.Addr{}, err)
	}
	defer witness.Close()
	var took time.Duration
	err = t.from.ns.Do(func() (err error) {
		took, err = probe.Ping(ctx, t.target, mark)
		return err
	})
	if err != nil {
		return t.reply(0, netip.Addr{}, err)
	}
	seen, err := witness.Source(mark)
	return t.reply(took, seen, err)
}

func (t talk) reply(took time.Duration, seen netip.Addr, err error) Reply {
	if err == nil && seen != t.source {
		err = fmt.Errorf("seen as %s", seen)
	}
	if err != nil {
		return Reply{Error: err.Error()}
	}
	return Reply{Millis: float64(took.Microseconds()) / 1000}
}

// BadPairsError says that Check found pairs that cannot talk as they should.
type BadPairsError struct{ Bad, All int }

func (e *BadPairsError) Error() string {
	return fmt.Sprintf("%d of %d pairs cannot talk as they should", e.Bad, e.All)
}

// ErrNoPair is for a lab without a pod: a check of nothing proves nothing.
var ErrNoPair = errors.New("there is no pod that could talk")

// Judge returns nil if all pairs are good.
func Judge(pairs []Pair) error {
	if len(pairs) == 0 {
		return ErrNoPair
	}
	bad := 0
	for _, p := range pairs {
		if !p.OK() {
			bad++
		}
	}
	if bad > 0 {
		return &BadPairsError{Bad: bad, All: len(pairs)}
	}
	return nil
}
