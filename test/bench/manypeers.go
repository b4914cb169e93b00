// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"path/filepath"
)

// manyPeers is how an agent fares with all the peers.
type manyPeers struct {
	Cold   []float64            // seconds from nothing to everything, per run
	Events map[string][]float64 // milliseconds, by kind
	Noop   []float64            // milliseconds per pass
	Memory residence
}

// events returns the times of all events.
func (m manyPeers) events() []float64 {
	var all []float64
	for _, kind := range eventKinds {
		all = append(all, m.Events[kind]...)
	}
	return all
}

// lines returns the results that have targets, and those beside them.
func (m manyPeers) lines() (targeted, more []line) {
	events := m.events()
	targeted = []line{
		{"peers_5000_cold_s", m.cold(), "s"},
		{"peer_event_p99_ms", exact(quantile(events, 0.99)), "ms"},
		{"agent_rss_5000_peers_mib", exact(max(m.Memory.Settled.RSS, m.Memory.Later.RSS)), "MiB"},
		{"resync_5000_noop_ms", exact(median(m.Noop)), "ms"},
	}
	more = []line{
		{"peer_event_p50_ms", exact(median(events)), "ms"},
		{"agent_pss_5000_peers_mib", exact(max(m.Memory.Settled.PSS, m.Memory.Later.PSS)), "MiB"},
		{"agent_peak_rss_5000_peers_mib", exact(m.Memory.Peak), "MiB"},
		{"resync_5000_noop_p99_ms", exact(quantile(m.Noop, 0.99)), "ms"},
	}
	for _, kind := range eventKinds {
		more = append(more,
			line{"peer_" + kind + "_p50_ms", exact(median(m.Events[kind])), "ms"},
			line{"peer_" + kind + "_p99_ms", exact(quantile(m.Events[kind], 0.99)), "ms"})
	}
	return targeted, more
}

// cold is the median. The least and the most of five runs enclose the true
// median with a probability of 94 %.
func (m manyPeers) cold() estimate {
	return estimate{median(m.Cold), quantile(m.Cold, 0), quantile(m.Cold, 1)}
}

func measurePeers(ctx context.Context, p places, x extent) (r manyPeers, err error) {
	say("%d peers: %d cold starts, %d events, %d passes", peerCount, x.Colds, x.PeerEvents, x.Noops)
	c, err := newCrowd(filepath.Join(p.run(), "registry"))
	if err != nil {
		return r, err
	}
	for run := range x.Colds - 1 {
		m, took, err := coldStart(ctx, p, c, run)
		if m != nil {
			err = errors.Join(err, m.end())
		}
		if err != nil {
			return r, err
		}
		r.Cold = append(r.Cold, took.Seconds())
	}
	m, took, err := coldStart(ctx, p, c, x.Colds-1)
	if m != nil {
		defer func() { err = errors.Join(err, m.end()) }()
	}
	if err != nil {
		return r, err
	}
	r.Cold = append(r.Cold, took.Seconds())
	err = r.warm(ctx, c, m, x)
	return r, err
}

// warm measures an agent that has them all. It ends the agent: from then on this
// process is at its place.
func (m *manyPeers) warm(ctx context.Context, c *crowd, a *member, x extent) (err error) {
	if m.Memory.Settled, err = a.settledMemory(ctx); err != nil {
		return err
	}
	if m.Events, err = measureEvents(ctx, c, a.node, x.PeerEvents); err != nil {
		return err
	}
	if m.Memory.Later, err = a.settledMemory(ctx); err != nil {
		return err
	}
	if m.Memory.Peak, err = a.peak(); err != nil {
		return err
	}
	if err := a.stop(); err != nil {
		return err
	}
	m.Noop, err = measureNoop(ctx, c, a, x.Noops)
	return err
}
