// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Kinds of traffic.
const (
	stream = "stream" // iperf3, one TCP connection
	rr     = "rr"     // one byte there and back
)

// pingpongPort is apart from iperf3's.
const pingpongPort = "5202"

// traffic is Weft's wiring beside one by hand: bit/s or round trips/s by name,
// in the order of the rounds.
type traffic struct {
	Weft, Handmade map[string][]float64
	MTU            int
	Tracked        int // connections that Weft's nodes track at the end
}

// trafficNames in the order of the report: a way and a kind each.
var trafficNames = []string{"vxlan_stream", "native_stream", "vxlan_rr", "native_rr"}

// ratios returns the results that have targets.
func (t traffic) ratios() (all []line) {
	for _, name := range trafficNames {
		all = append(all, line{name + "_vs_handmade", ratioOfMedians(t.Weft[name], t.Handmade[name]), "ratio"})
	}
	return all
}

// rates returns what the ratios are of.
func (t traffic) rates() (all []line) {
	for _, name := range trafficNames {
		unit, per := "1/s", 1.0
		if strings.HasSuffix(name, stream) {
			unit, per = "Gbit/s", 1e9
		}
		all = append(all,
			line{name + "_weft", exact(median(t.Weft[name]) / per), unit},
			line{name + "_handmade", exact(median(t.Handmade[name]) / per), unit})
	}
	return all
}

func measureTraffic(ctx context.Context, p places, x extent) (t traffic, err error) {
	say("traffic between nodes: %d rounds of %s", x.TrafficRounds, x.TrafficRun)
	weft, err := weftWiring(ctx, p)
	if err != nil {
		return t, err
	}
	if t.MTU, err = weft.mtu(); err != nil {
		return t, err
	}
	hand, err := handmadeWiring(ctx, t.MTU)
	if err != nil {
		return t, err
	}
	players := &players{pingpong: p.pingpong(), run: x.TrafficRun}
	defer func() { err = errors.Join(err, players.stop()) }()
	for _, w := range []*wiring{weft, hand} {
		if err := players.serve(ctx, w); err != nil {
			return t, err
		}
	}
	t.Weft, t.Handmade = map[string][]float64{}, map[string][]float64{}
	for round := range x.TrafficRounds {
		for _, i := range order(len(trafficNames), round) {
			name := trafficNames[i]
			// A B, then B A: what drifts evenly hits both alike.
			turns := []*wiring{weft, hand}
			if round%2 == 1 {
				turns = []*wiring{hand, weft}
			}
			got, err := players.pair(ctx, name, turns)
			if err != nil {
				return t, err
			}
			t.Weft[name] = append(t.Weft[name], got[weft])
			t.Handmade[name] = append(t.Handmade[name], got[hand])
		}
	}
	return t, t.checkTracking(ctx, weft, hand)
}

// checkTracking makes sure that the wiring by hand is one without connection
// tracking, as it is said to be.
func (t *traffic) checkTracking(ctx context.Context, weft, hand *wiring) (err error) {
	if t.Tracked, err = weft.tracked(ctx); err != nil {
		return err
	}
	if n, err := hand.tracked(ctx); err != nil || n > 0 {
		return errors.Join(err, fmt.Errorf("the wiring by hand tracks %d connections, want none", n))
	}
	return nil
}

// players are the programs that talk.
type players struct {
	pingpong string
	run      time.Duration // of one measurement
	servers  []*exec.Cmd
}

// Each end has a core of its own, where there are two.
func pinned(core int, netns string, command ...string) []string {
	core = min(core, runtime.NumCPU()-1)
	return append([]string{"taskset", "-c", strconv.Itoa(core), "nsenter", "--net=" + netns}, command...)
}

func (p *players) call(ctx context.Context, w *wiring, command ...string) ([]byte, error) {
	argv := pinned(0, w.client, command...)
	return output(exec.CommandContext(ctx, argv[0], argv[1:]...))
}

// serve starts both servers in both pods, and waits until they answer.
func (p *players) serve(ctx context.Context, w *wiring) error {
	for way, s := range w.servers {
		for _, command := range [][]string{{"iperf3", "-s"}, {p.pingpong, "serve", s.addr.String() + ":" + pingpongPort}} {
			argv := pinned(1, s.netns, command...)
			cmd := exec.Command(argv[0], argv[1:]...)
			if err := cmd.Start(); err != nil {
				return fmt.Errorf("start %s: %w", command[0], err)
			}
			p.servers = append(p.servers, cmd)
		}
		var last error
		err := await(10*time.Second, w.name+": reach the pod by "+way, func() (bool, error) {
			_, err := p.call(ctx, w, "iperf3", "-c", s.addr.String(), "-n", "1K")
			if err == nil {
				_, err = p.call(ctx, w, p.pingpong, "call", s.addr.String()+":"+pingpongPort, "1ms")
			}
			last = err
			return err == nil, ctx.Err()
		})
		if err != nil {
			return fmt.Errorf("%w: %w", err, last)
		}
	}
	return nil
}

func (p *players) stop() error {
	var errs []error
	for _, cmd := range p.servers {
		errs = append(errs, cmd.Process.Kill())
		_ = cmd.Wait() // that it was killed is no news
	}
	return errors.Join(errs...)
}

// pair lets the wirings take turns, and sees by which way the bytes went.
func (p *players) pair(ctx context.Context, name string, turns []*wiring) (map[*wiring]float64, error) {
	way, kind, _ := strings.Cut(name, "_")
	got := map[*wiring]float64{}
	for i, w := range turns {
		other := turns[1-i]
		before, err := sentBy(w, other)
		if err != nil {
			return nil, err
		}
		rate, bytes, err := p.measure(ctx, w, way, kind)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", w.name, name, err)
		}
		after, err := sentBy(w, other)
		if err != nil {
			return nil, err
		}
		if err := checkWay(way, bytes, before, after); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", w.name, name, err)
		}
		got[w] = rate
	}
	return got, nil
}

func sentBy(w, other *wiring) (both [2]sent, err error) {
	if both[0], err = w.sent(); err == nil {
		both[1], err = other.sent()
	}
	return both, err
}

// checkWay sees that the bytes left node1 by the way that is measured and by no
// other, and that the other wiring was idle.
func checkWay(way string, bytes float64, before, after [2]sent) error {
	const idle = 100_000 // bytes: neighbours that look for each other
	uplink, overlay := float64(after[0].uplink-before[0].uplink), float64(after[0].overlay-before[0].overlay)
	other := float64(after[1].uplink - before[1].uplink)
	switch {
	case uplink < bytes:
		return fmt.Errorf("%.0f bytes sent, but node1's uplink counted %.0f", bytes, uplink)
	case way == vxlan && overlay < bytes:
		return fmt.Errorf("%.0f bytes sent, but node1's VXLAN device counted %.0f", bytes, overlay)
	case way == native && overlay > idle:
		return fmt.Errorf("node1's VXLAN device counted %.0f bytes of native traffic", overlay)
	case other > idle:
		return fmt.Errorf("the other wiring counted %.0f bytes meanwhile", other)
	}
	return nil
}

// measure returns the rate and the least number of bytes that it took.
func (p *players) measure(ctx context.Context, w *wiring, way, kind string) (rate, bytes float64, err error) {
	time.Sleep(rest)
	to := w.servers[way].addr.String()
	if kind == stream {
		out, err := p.call(ctx, w, "iperf3", "-c", to, "-J", "-t", strconv.Itoa(int(p.run.Seconds())))
		if err != nil {
			return 0, 0, err
		}
		return parseStream(out)
	}
	out, err := p.call(ctx, w, p.pingpong, "call", to+":"+pingpongPort, p.run.String())
	if err != nil {
		return 0, 0, err
	}
	rate, err = strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	const packet = 20 + 32 + 1 // IPv4, TCP with time stamps, the byte
	return rate, rate * p.run.Seconds() * packet, err
}

// parseStream reads iperf3's report.
func parseStream(raw []byte) (rate, bytes float64, err error) {
	var r struct {
		End struct {
			Received struct {
				Rate  float64 `json:"bits_per_second"`
				Bytes float64 `json:"bytes"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return 0, 0, fmt.Errorf("read iperf3's report: %w", err)
	}
	if r.End.Received.Rate <= 0 {
		return 0, 0, errors.New("read iperf3's report: it has no rate")
	}
	return r.End.Received.Rate, r.End.Received.Bytes, nil
}
