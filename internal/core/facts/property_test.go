// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"weft.dev/weft/internal/core/attach"
)

// modelRecord and model are the rules of the package documentation, written
// as plainly as possible: no scopes index, no queue, no sharing.
type modelRecord struct {
	kind                    Kind
	phase                   Phase
	created, since, suspect int64
	addrs                   []netip.Addr
}

type freedAddr struct {
	scope string
	addr  netip.Addr
	at    int64
}

type model struct {
	records map[attach.Key]modelRecord
	freed   []freedAddr // oldest first
	config  string
}

func modelScope(kind Kind, k attach.Key) string {
	if kind == Veth {
		return "veth"
	}
	return "ipam " + k.Network
}

func (m *model) holder(scope string, a netip.Addr) (attach.Key, bool) {
	for k, r := range m.records {
		if modelScope(r.kind, k) == scope && slices.Contains(r.addrs, a) {
			return k, true
		}
	}
	return attach.Key{}, false
}

func (m *model) unfree(scope string, a netip.Addr) {
	m.freed = slices.DeleteFunc(m.freed, func(f freedAddr) bool { return f.scope == scope && f.addr == a })
}

func (m *model) free(scope string, a netip.Addr, at int64) {
	m.freed = append(m.freed, freedAddr{scope, a, at})
}

// hold is intent and reserve; it reports whether the entry is acceptable.
func (m *model) hold(at int64, k attach.Key, r modelRecord) bool {
	old, replaces := m.records[k]
	if replaces && old.kind != r.kind {
		return false
	}
	scope := modelScope(r.kind, k)
	for _, a := range r.addrs {
		if holder, held := m.holder(scope, a); held && holder != k {
			return false
		}
	}
	for _, a := range old.addrs {
		if !slices.Contains(r.addrs, a) {
			m.free(scope, a, at)
		}
	}
	for _, a := range r.addrs {
		m.unfree(scope, a)
	}
	r.created, r.since = at, at
	m.records[k] = r
	return true
}

// step is every other entry about a record.
func (m *model) step(verb string, at int64, k attach.Key) bool {
	r, ok := m.records[k]
	switch {
	case !ok:
		return false
	case verb == "complete" && r.phase == Intent:
		r.phase, r.since = Complete, at
	case verb == "releasing" && r.phase == Releasing:
	case verb == "releasing":
		r.phase, r.since = Releasing, at
	case verb == "released" && r.phase != Complete:
		for _, a := range r.addrs {
			m.free(modelScope(r.kind, k), a, at)
		}
		delete(m.records, k)
		return true
	case verb == "suspect" && r.suspect == 0:
		r.suspect = at
	case verb == "suspect":
	case verb == "cleared":
		r.suspect = 0
	default:
		return false
	}
	m.records[k] = r
	return true
}

// compare fails unless facts and model say the same.
func (m *model) compare(t *rapid.T, f *Facts) {
	if f.Len() != len(m.records) || len(f.Records()) != len(m.records) {
		t.Fatalf("%d records, the model has %d", f.Len(), len(m.records))
	}
	for k, want := range m.records {
		r, ok := f.Get(k)
		got := modelRecord{r.Kind, r.Phase, r.Created, r.Since, r.Suspect, r.Addresses}
		if !ok || r.Key != k || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s: got %v, want %v", k, got, want)
		}
		for _, a := range want.addrs {
			if owner, _ := f.Usage(want.kind, k.Network).Owner(a); owner != k.String() {
				t.Fatalf("%s is owned by %q, want %s", a, owner, k)
			}
		}
	}
	for _, network := range []string{"net0", "net1"} {
		for _, kind := range []Kind{Veth, IPAM} {
			scope := modelScope(kind, attach.Key{Network: network})
			var got, want []string
			for a, at := range f.Usage(kind, network).Released {
				got = append(got, fmt.Sprint(a, at))
			}
			for _, fr := range m.freed {
				if fr.scope == scope {
					want = append(want, fmt.Sprint(fr.addr, fr.at))
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("released in %s: %s", scope, d)
			}
		}
	}
	if f.Config() != m.config {
		t.Fatalf("config %q, want %q", f.Config(), m.config)
	}
}

func drawKey(t *rapid.T) attach.Key {
	return attach.Key{
		Network:     rapid.SampledFrom([]string{"net0", "net1"}).Draw(t, "network"),
		ContainerID: rapid.SampledFrom([]string{"c0", "c1", "c2"}).Draw(t, "container"),
		Ifname:      rapid.SampledFrom([]string{"eth0", "eth1"}).Draw(t, "ifname"),
	}
}

func drawAddrs(t *rapid.T) []netip.Addr {
	pool := addrs("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1", "fd00::2")
	return rapid.SliceOfNDistinct(rapid.SampledFrom(pool), 0, 3, rapid.ID[netip.Addr]).Draw(t, "addrs")
}

// drawEntry draws an entry that may or may not fit, and what the model says.
func drawEntry(t *rapid.T, m *model, at int64) (entry string, fits bool) {
	k := drawKey(t)
	var err error
	switch verb := rapid.SampledFrom([]string{"intent", "reserve", "intent", "complete", "releasing", "released", "suspect", "cleared", "config"}).Draw(t, "verb"); verb {
	case "intent":
		a := drawAddrs(t)
		entry, err = EncodeIntent(at, k, Veth, a, Detail{MTU: 1500})
		fits = m.hold(at, k, modelRecord{kind: Veth, phase: Intent, addrs: a})
	case "reserve":
		a := drawAddrs(t)
		entry, err = EncodeReserve(at, k, a, Detail{})
		fits = m.hold(at, k, modelRecord{kind: IPAM, phase: Complete, addrs: a})
	case "config":
		m.config = fmt.Sprintf(`{"at":%d}`, at)
		entry, err = EncodeConfig(at, m.config)
		fits = true
	case "complete":
		entry, err = EncodeComplete(at, k)
		fits = m.step(verb, at, k)
	default:
		entry, err = encodeStep(verb, at, k)
		fits = m.step(verb, at, k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return entry, fits
}

// TestFactsMatchModel drives facts and model through the same random history.
// From time to time the facts are thrown away and rebuilt by compaction, which
// must make no difference to anything that follows.
func TestFactsMatchModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{records: map[attach.Key]modelRecord{}}
		f := New()
		var accepted []string
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for at := int64(1); at <= int64(steps); at++ {
			entry, fits := drawEntry(t, m, at)
			before := dump(f)
			err := f.Apply(entry)
			if (err == nil) != fits {
				t.Fatalf("apply %q: got %v, the model accepts: %v", entry, err, fits)
			}
			if err != nil && dump(f) != before {
				t.Fatalf("rejected %q changed the facts", entry)
			}
			if err == nil {
				accepted = append(accepted, entry)
			}
			m.compare(t, f)
			if rapid.IntRange(0, 9).Draw(t, "compact") == 0 {
				f = rebuild(t, f)
				m.compare(t, f)
			}
		}
		checkPrefixes(t, accepted)
	})
}

// rebuild returns facts replayed from the compacted entries.
func rebuild(t *rapid.T, f *Facts) *Facts {
	entries := entriesOf(f)
	if f.Live() != len(entries) {
		t.Fatalf("Live %d, but %d entries", f.Live(), len(entries))
	}
	g := New()
	for _, e := range entries {
		if err := g.Apply(e); err != nil {
			t.Fatalf("apply compacted %q: %v", e, err)
		}
	}
	if dump(f) != dump(g) {
		t.Fatalf("compaction changed the facts:\n%s", cmp.Diff(dump(f), dump(g)))
	}
	if again := entriesOf(g); !slices.Equal(entries, again) {
		t.Fatalf("compacting twice differs:\n%s", cmp.Diff(entries, again))
	}
	return g
}

// checkPrefixes replays each prefix of a journal: a process may die after any
// entry.
func checkPrefixes(t *rapid.T, entries []string) {
	for n := range entries {
		f := New()
		for _, e := range entries[:n] {
			if err := f.Apply(e); err != nil {
				t.Fatalf("prefix of %d entries: apply %q: %v", n, e, err)
			}
		}
		for _, e := range entriesOf(f) {
			if strings.Contains(e, "\n") {
				t.Fatalf("entry %q is not one line", e)
			}
		}
	}
}

// FuzzApply: whatever an entry says, Apply does not panic, a rejected one
// changes nothing, and what is accepted survives compaction.
func FuzzApply(f *testing.F) {
	for _, seed := range []string{
		`intent 9 n/c/i veth 10.0.0.9,fd00::9 {"mtu":1500}`,
		`complete 9 podnet/aaaa/eth0`,
		`reserve 9 n/c/i ipam 10.0.0.9 {"x":1}`,
		`releasing 9 podnet/aaaa/eth0`, `released 9 podnet/aaaa/eth0`,
		`suspect 9 podnet/aaaa/eth0`, `cleared 9 podnet/aaaa/eth0`, `config 9 {}`,
		`record C 1 2 3 n/c/i ipam 10.0.0.1 {}`, `record I 1 2 0 n/c/i veth - {}`,
		`freed 9 veth - 10.0.0.7`, `freed 9 ipam net 10.0.0.7`,
		`intent 9 podnet/aaaa/eth0 veth 10.0.0.2 {}`, `suspect 9 ///`, `suspect 9223372036854775807 podnet/aaaa/eth0`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		m, fx := must(t), New()
		apply(t, fx,
			m(EncodeIntent(1, keyA, Veth, addrs("10.0.0.1"), Detail{})),
			m(EncodeIntent(2, keyB, Veth, addrs("10.0.0.2", "fd00::2"), Detail{})), m(EncodeComplete(3, keyB)),
			m(EncodeReserve(4, keyC, addrs("10.0.0.3"), Detail{})))
		before := dump(fx)
		if err := fx.Apply(entry); err != nil {
			if after := dump(fx); after != before {
				t.Fatalf("rejected (%v), but changed:\n%s", err, cmp.Diff(before, after))
			}
			return
		}
		if d := cmp.Diff(dump(fx), dump(replay(t, entriesOf(fx)))); d != "" {
			t.Fatalf("compaction after %q:\n%s", entry, d)
		}
	})
}

// BenchmarkReplay4000 replays a compacted journal of complete attachments.
func BenchmarkReplay4000(b *testing.B) {
	m, f := must(b), New()
	for i := range 4000 {
		k := attach.Key{Network: "podnet", ContainerID: fmt.Sprintf("%064x", i*7919), Ifname: "eth0"}
		a := netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)})
		apply(b, f, m(EncodeIntent(1e18, k, Veth, []netip.Addr{a}, Detail{MTU: 1450})), m(EncodeComplete(1e18, k)))
	}
	entries := entriesOf(f)
	b.ReportAllocs()
	for b.Loop() {
		replay(b, entries)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(entries)), "ns/entry")
}
