// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is wanted, whatever fails and however, and whatever others do to
// the kernel, told or not: once things work, the kernel holds what is wanted.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{world: newWorld("link", "neighbour", "route").open()}
		for range m.tables {
			m.want = append(m.want, map[key]string{})
		}
		t.Repeat(map[string]func(*rapid.T){
			"want":   m.wantOrNot,
			"fail":   m.fail,
			"blind":  m.blind,
			"tamper": m.tamper,
			"occupy": m.occupy,
			"resync": func(t *rapid.T) {
				m.Resync(rapid.SampledFrom([]string{"", "link", "neighbour", "route"}).Draw(t, "kind"))
			},
			"step": func(*rapid.T) { m.step() },
			"wait": func(t *rapid.T) {
				ms := rapid.IntRange(1, 100_000).Draw(t, "ms")
				// Three tables with eight keys each: all may fail at all times.
				if steps := m.run(time.Duration(ms) * time.Millisecond); steps > 500+ms/10 {
					t.Fatalf("%d steps in %d ms", steps, ms)
				}
			},
			"": m.check,
		})
		m.heal(t)
	})
}

type model struct {
	*world
	want   []map[key]string
	untold bool // the kernel was changed behind the Reconciler's back
}

func (m *model) pick(t *rapid.T) (i int, k key) {
	return rapid.IntRange(0, len(m.tables)-1).Draw(t, "table"), key(rapid.IntRange(0, 7).Draw(t, "key"))
}

var values = rapid.SampledFrom([]string{"", "a", "b"}) // "": none

func (m *model) wantOrNot(t *rapid.T) {
	i, k := m.pick(t)
	if v := values.Draw(t, "value"); v == "" {
		m.tables[i].Unwant(k)
		delete(m.want[i], k)
	} else {
		m.tables[i].Want(k, v, "test")
		m.want[i][k] = v
	}
}

func (m *model) fail(t *rapid.T) {
	i, k := m.pick(t)
	m.kernels[i].modes[k] = rapid.SampledFrom([]mode{works, once, always, happened}).Draw(t, "mode")
}

func (m *model) blind(t *rapid.T) {
	i, _ := m.pick(t)
	m.kernels[i].blind = rapid.SampledFrom([]error{nil, errKernel}).Draw(t, "error")
}

func (m *model) tamper(t *rapid.T) {
	i, k := m.pick(t)
	v := values.Draw(t, "value")
	if m.kernels[i].have[k] == v {
		return
	}
	if v == "" {
		delete(m.kernels[i].have, k)
	} else {
		m.kernels[i].have[k] = v
		delete(m.kernels[i].foreign, k)
	}
	if i == 0 {
		clear(m.kernels[1].have)
		clear(m.kernels[2].have)
	}
	if rapid.Bool().Draw(t, "told") {
		m.Noticed(m.kernels[i].name, k, v, v == "")
	} else {
		m.untold = true
	}
}

func (m *model) occupy(t *rapid.T) {
	i, k := m.pick(t)
	if _, ours := m.kernels[i].have[k]; !ours {
		m.kernels[i].foreign[k] = true
	}
}

// check: what is called settled is so, as long as nobody was secretive.
func (m *model) check(t *rapid.T) {
	if !m.untold && m.Settled() {
		m.same(t)
	}
}

func (m *model) same(t *rapid.T) {
	for i, k := range m.kernels {
		if !maps.Equal(k.have, m.want[i]) {
			t.Fatalf("%s: kernel holds %v, want %v\n%+v", k.name, k.have, m.want[i], m.Status()[i])
		}
	}
}

func (m *model) heal(t *rapid.T) {
	for _, k := range m.kernels {
		k.blind = nil
		clear(k.modes)
		clear(k.foreign)
	}
	m.run(2 * resyncInterval)
	if !m.Settled() {
		t.Fatalf("not settled: %+v", m.Status())
	}
	m.same(t)
	for _, s := range m.Status() {
		if s.InSyncSince.IsZero() || s.Pending > 0 || len(s.Failing) > 0 {
			t.Fatalf("status %+v", s)
		}
	}
	// At rest there is nothing but the timer.
	for _, k := range m.kernels {
		k.reads, k.ops = 0, 0
	}
	if steps := m.run(10 * resyncInterval); steps > 3*10+1 {
		t.Fatalf("%d steps at rest", steps)
	}
	for _, k := range m.kernels {
		if k.ops > 0 || k.reads > 10 {
			t.Fatalf("%s: %d reads, %d operations at rest", k.name, k.reads, k.ops)
		}
	}
}
