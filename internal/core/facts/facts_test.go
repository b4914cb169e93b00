// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"weft.dev/weft/internal/core/attach"
)

var (
	keyA = attach.Key{Network: "podnet", ContainerID: "aaaa", Ifname: "eth0"}
	keyB = attach.Key{Network: "podnet", ContainerID: "bbbb", Ifname: "eth0"}
	keyC = attach.Key{Network: "other", ContainerID: "cccc", Ifname: "net1"}
)

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, t := range texts {
		list = append(list, netip.MustParseAddr(t))
	}
	return list
}

// must returns an entry that is known to be encodable.
func must(t testing.TB) func(string, error) string {
	return func(entry string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return entry
	}
}

func apply(t testing.TB, f *Facts, entries ...string) {
	t.Helper()
	for _, e := range entries {
		if err := f.Apply(e); err != nil {
			t.Fatalf("apply %q: %v", e, err)
		}
	}
}

// dump returns everything that can be seen of facts, one line each.
func dump(f *Facts) string {
	var b strings.Builder
	for _, r := range f.Records() {
		text, _ := json.Marshal(struct {
			Record
			D string
		}{r, r.detail})
		b.Write(append(text, '\n'))
	}
	for _, s := range f.scopeOrder() {
		u := f.scopes[s]
		for a, owner := range u.Used {
			b.WriteString("used " + string(s.kind) + " " + s.network + " " + a.String() + " " + owner + "\n")
		}
		for a, at := range u.Released {
			text, _ := json.Marshal(at)
			b.WriteString("released " + string(s.kind) + " " + s.network + " " + a.String() + " " + string(text) + "\n")
		}
	}
	return b.String() + "config " + f.Config() + "\n"
}

func entriesOf(f *Facts) []string { return slices.Collect(f.Entries) }

func replay(t testing.TB, entries []string) *Facts {
	t.Helper()
	f := New()
	f.Expect(len(entries))
	apply(t, f, entries...)
	return f
}

func TestLifeOfAnAttachment(t *testing.T) {
	m, f := must(t), New()
	get := func() Record {
		t.Helper()
		r, ok := f.Get(keyA)
		if !ok {
			t.Fatal("no record")
		}
		return r
	}
	detail := Detail{Pod: attach.Pod{Namespace: "ns", Name: "web"}, Netns: "/run/netns/x", MTU: 1450}

	apply(t, f, m(EncodeIntent(10, keyA, Veth, addrs("10.0.0.1", "fd00::1"), detail)))
	r := get()
	if r.Phase != Intent || r.Since != 10 || r.Created != 10 || r.Key != keyA || r.Kind != Veth {
		t.Fatalf("after intent: %+v", r)
	}
	apply(t, f, m(EncodeComplete(20, keyA)))
	if r = get(); r.Phase != Complete || r.Since != 20 || r.Created != 10 {
		t.Fatalf("after complete: %+v", r)
	}
	apply(t, f, m(EncodeSuspect(30, keyA)), m(EncodeSuspect(31, keyA)))
	if r = get(); r.Suspect != 30 || r.Phase != Complete || r.Since != 20 {
		t.Fatalf("suspicion keeps its first time and the phase: %+v", r)
	}
	apply(t, f, m(EncodeCleared(32, keyA)))
	if r = get(); r.Suspect != 0 {
		t.Fatalf("after cleared: %+v", r)
	}
	apply(t, f, m(EncodeReleasing(40, keyA)), m(EncodeReleasing(41, keyA)))
	if r = get(); r.Phase != Releasing || r.Since != 40 || len(r.Addresses) != 2 {
		t.Fatalf("a repeated releasing keeps the first time and the addresses: %+v", r)
	}
	if d, err := r.Detail(); err != nil || !cmp.Equal(d, detail) {
		t.Fatalf("detail %+v, %v", d, err)
	}
	if owner, ok := f.Usage(Veth, "any").Owner(addrs("10.0.0.1")[0]); !ok || owner != keyA.String() {
		t.Fatalf("owner %q, %v", owner, ok)
	}
	apply(t, f, m(EncodeReleased(50, keyA)))
	if _, ok := f.Get(keyA); ok || f.Len() != 0 {
		t.Fatal("the record outlived its release")
	}
	want := "released veth  10.0.0.1 50\nreleased veth  fd00::1 50\nconfig \n"
	if got := dump(f); got != want {
		t.Fatalf("got:\n%swant:\n%s", got, want)
	}
}

func TestIntentReplacesAndFreesWhatIsNotKept(t *testing.T) {
	m, f := must(t), New()
	apply(t, f,
		m(EncodeIntent(10, keyA, Veth, addrs("10.0.0.1", "10.0.0.2"), Detail{})),
		m(EncodeComplete(11, keyA)), m(EncodeSuspect(12, keyA)),
		m(EncodeIntent(20, keyA, Veth, addrs("10.0.0.2", "10.0.0.3"), Detail{MTU: 1400})))
	r, _ := f.Get(keyA)
	if r.Phase != Intent || r.Created != 20 || r.Suspect != 0 || r.detail != `{"mtu":1400}` {
		t.Fatalf("the earlier record shows through: %+v", r)
	}
	u := f.Usage(Veth, "")
	if _, held := u.Owner(addrs("10.0.0.1")[0]); held {
		t.Fatal("10.0.0.1 is still held")
	}
	if got := slices.Collect(func(y func(netip.Addr) bool) { u.Used(func(a netip.Addr, _ string) bool { return y(a) }) }); !cmp.Equal(got, addrs("10.0.0.2", "10.0.0.3"), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
		t.Fatalf("used: %v", got)
	}
}

func TestScopes(t *testing.T) {
	m, f := must(t), New()
	one := addrs("10.0.0.1")
	apply(t, f, m(EncodeIntent(1, keyA, Veth, one, Detail{})))

	// All veths share the host's routing table, whatever their network.
	var taken *AddressError
	err := f.Apply(m(EncodeIntent(2, keyC, Veth, one, Detail{})))
	if !errors.As(err, &taken) || taken.Owner != keyA.String() || taken.Key != keyC.String() || taken.Addr != one[0] {
		t.Fatalf("got %v", err)
	}
	// Reservations for other plugins are apart, each network by itself.
	apply(t, f, m(EncodeReserve(3, keyB, one, Detail{})), m(EncodeReserve(4, keyC, one, Detail{})))
	again := attach.Key{Network: keyB.Network, ContainerID: "dddd", Ifname: "eth0"}
	if err := f.Apply(m(EncodeReserve(5, again, one, Detail{}))); !errors.As(err, &taken) || taken.Owner != keyB.String() {
		t.Fatalf("got %v", err)
	}
	if r, _ := f.Get(keyB); r.Phase != Complete || r.Kind != IPAM {
		t.Fatalf("a reservation is complete at once: %+v", r)
	}
	if f.Usage(IPAM, "nobody's").Len() != 0 {
		t.Fatal("an unknown scope is not empty")
	}
}

func TestRejectionsChangeNothing(t *testing.T) {
	m, f := must(t), New()
	apply(t, f,
		m(EncodeIntent(1, keyA, Veth, addrs("10.0.0.1"), Detail{})),
		m(EncodeIntent(2, keyB, Veth, addrs("10.0.0.2"), Detail{})), m(EncodeComplete(3, keyB)),
		m(EncodeReserve(4, keyC, addrs("10.0.0.3"), Detail{})),
		m(EncodeConfig(5, `{"a":1}`)))
	a := `podnet/aaaa/eth0`
	for _, tc := range []struct {
		name, entry string
		as          any
	}{
		{"complete twice", m(EncodeComplete(9, keyB)), new(*PhaseError)},
		{"complete nothing", m(EncodeComplete(9, attach.Key{Network: "n", ContainerID: "c", Ifname: "i"})), new(*PhaseError)},
		{"released while complete", m(EncodeReleased(9, keyB)), new(*PhaseError)},
		{"suspect nothing", `suspect 9 n/c/i`, new(*PhaseError)},
		{"second address in use", m(EncodeIntent(9, keyA, Veth, addrs("10.0.0.9", "10.0.0.2"), Detail{})), new(*AddressError)},
		{"address twice", `intent 9 ` + a + ` veth 10.0.0.9,10.0.0.9 {}`, new(*AddressError)},
		{"other kind", m(EncodeReserve(9, keyA, addrs("10.0.0.1"), Detail{})), new(*KindError)},
		{"record exists", `record I 1 1 0 ` + a + ` veth - {}`, new(*PhaseError)},
		{"freed is held", `freed 9 veth - 10.0.0.1`, new(*AddressError)},
		{"empty", ``, new(*SyntaxError)},
		{"unknown verb", `levitate 9 ` + a, new(*SyntaxError)},
		{"time zero", `suspect 0 ` + a, new(*SyntaxError)},
		{"time negative", `suspect -1 ` + a, new(*SyntaxError)},
		{"time too large", `suspect 9223372036854775808 ` + a, new(*SyntaxError)},
		{"time of 20 digits", `suspect 18446744073709551617 ` + a, new(*SyntaxError)},
		{"time with sign", `suspect +9 ` + a, new(*SyntaxError)},
		{"time in hexadecimal", `suspect 9a ` + a, new(*SyntaxError)},
		{"time empty", `suspect  ` + a, new(*SyntaxError)},
		{"time alone", `suspect 9`, new(*SyntaxError)},
		{"kind alone", `intent 9 ` + a + ` veth`, new(*SyntaxError)},
		{"kind longer", `intent 9 ` + a + ` vethx 10.0.0.9 {}`, new(*SyntaxError)},
		{"key of two parts", `suspect 9 podnet/aaaa`, new(*SyntaxError)},
		{"key of four parts", `suspect 9 podnet/aaaa/x/eth0`, new(*SyntaxError)},
		{"key with empty part", `suspect 9 podnet//eth0`, new(*SyntaxError)},
		{"key with empty network", `suspect 9 /aaaa/eth0`, new(*SyntaxError)},
		{"key with empty interface", `suspect 9 podnet/aaaa/`, new(*SyntaxError)},
		{"trailing field", `suspect 9 ` + a + ` more`, new(*SyntaxError)},
		{"unknown kind", `intent 9 ` + a + ` tun 10.0.0.9 {}`, new(*SyntaxError)},
		{"bad address", `intent 9 ` + a + ` veth 10.0.0.256 {}`, new(*SyntaxError)},
		{"address with zone", `intent 9 ` + a + ` veth fe80::1%eth0 {}`, new(*SyntaxError)},
		{"mapped address", `intent 9 ` + a + ` veth ::ffff:10.0.0.9 {}`, new(*SyntaxError)},
		{"address list ends in comma", `intent 9 ` + a + ` veth 10.0.0.9, {}`, new(*SyntaxError)},
		{"detail missing", `intent 9 ` + a + ` veth 10.0.0.9`, new(*SyntaxError)},
		{"complete with more", `complete 9 ` + a + ` {}`, new(*SyntaxError)},
		{"reserve a veth", `reserve 9 n/c/i veth 10.0.0.9 {}`, new(*SyntaxError)},
		{"detail is no object", `reserve 9 n/c/i ipam 10.0.0.9 []`, new(*SyntaxError)},
		{"detail of a record missing", `record C 1 1 0 n/c/i veth -`, new(*SyntaxError)},
		{"record of unknown phase", `record X 1 1 0 n/c/i veth - {}`, new(*SyntaxError)},
		{"record suspect negative", `record I 1 1 -5 n/c/i veth - {}`, new(*SyntaxError)},
		{"freed veth with network", `freed 9 veth podnet 10.0.0.9`, new(*SyntaxError)},
		{"freed ipam without network", `freed 9 ipam - 10.0.0.9`, new(*SyntaxError)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := dump(f)
			err := f.Apply(tc.entry)
			if err == nil || !errors.As(err, tc.as) {
				t.Fatalf("apply %q: got %v, want a %T", tc.entry, err, tc.as)
			}
			if after := dump(f); after != before {
				t.Fatalf("a rejected entry changed the facts:\n%s", cmp.Diff(before, after))
			}
		})
	}
}

func TestEncodersRefuse(t *testing.T) {
	one := addrs("10.0.0.1")
	with := func(change func(*attach.Key)) attach.Key { k := keyA; change(&k); return k }
	for name, enc := range map[string]func() (string, error){
		"time zero":          func() (string, error) { return EncodeSuspect(0, keyA) },
		"network empty":      func() (string, error) { return EncodeSuspect(1, with(func(k *attach.Key) { k.Network = "" })) },
		"network with space": func() (string, error) { return EncodeSuspect(1, with(func(k *attach.Key) { k.Network = "a b" })) },
		"network with slash": func() (string, error) { return EncodeSuspect(1, with(func(k *attach.Key) { k.Network = "a/b" })) },
		"network begins -":   func() (string, error) { return EncodeSuspect(1, with(func(k *attach.Key) { k.Network = "-" })) },
		"container newline":  func() (string, error) { return EncodeSuspect(1, with(func(k *attach.Key) { k.ContainerID = "a\n" })) },
		"interface dots":     func() (string, error) { return EncodeSuspect(1, with(func(k *attach.Key) { k.Ifname = ".." })) },
		"interface too long": func() (string, error) {
			return EncodeSuspect(1, with(func(k *attach.Key) { k.Ifname = "0123456789abcdef" }))
		},
		"interface colon": func() (string, error) { return EncodeSuspect(1, with(func(k *attach.Key) { k.Ifname = "eth0:1" })) },
		"unknown kind":    func() (string, error) { return EncodeIntent(1, keyA, "tun", one, Detail{}) },
		"no address":      func() (string, error) { return EncodeIntent(1, keyA, Veth, make([]netip.Addr, 1), Detail{}) },
		"zone":            func() (string, error) { return EncodeIntent(1, keyA, Veth, addrs("fe80::1%lo"), Detail{}) },
		"mapped":          func() (string, error) { return EncodeIntent(1, keyA, Veth, addrs("::ffff:1.2.3.4"), Detail{}) },
		"delegate config": func() (string, error) {
			return EncodeIntent(1, keyA, Veth, one, Detail{Delegate: &Delegate{Config: json.RawMessage("{")}})
		},
		"answer": func() (string, error) {
			return EncodeReserve(1, keyA, one, Detail{Answer: json.RawMessage("{")})
		},
		"config not an object": func() (string, error) { return EncodeConfig(1, "3") },
	} {
		t.Run(name, func(t *testing.T) {
			entry, err := enc()
			var refused *SyntaxError
			if !errors.As(err, &refused) || entry != "" {
				t.Fatalf("got %q, %v", entry, err)
			}
		})
	}
}

func TestEntriesAreOnePerRecord(t *testing.T) {
	m, f := must(t), New()
	apply(t, f,
		m(EncodeIntent(1, keyB, Veth, addrs("10.0.0.9"), Detail{})), m(EncodeReleased(2, keyB)),
		m(EncodeReserve(3, keyC, addrs("10.0.0.8"), Detail{})), m(EncodeReleasing(4, keyC)), m(EncodeReleased(5, keyC)),
		m(EncodeIntent(6, keyB, Veth, addrs("10.0.0.2"), Detail{MTU: 1400})), m(EncodeComplete(7, keyB)), m(EncodeSuspect(8, keyB)),
		m(EncodeIntent(9, keyA, Veth, nil, Detail{})),
		m(EncodeConfig(10, `{"old":1}`)), m(EncodeConfig(11, `{ "new": 1 }`)))
	want := []string{
		`config 11 {"new":1}`,
		`freed 5 ipam other 10.0.0.8`,
		`freed 2 veth - 10.0.0.9`,
		`record I 9 9 0 podnet/aaaa/eth0 veth - {}`,
		`record C 6 7 8 podnet/bbbb/eth0 veth 10.0.0.2 {"mtu":1400}`,
	}
	got := entriesOf(f)
	if d := cmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if f.Live() != len(want) {
		t.Fatalf("Live is %d, want %d", f.Live(), len(want))
	}
	if d := cmp.Diff(dump(f), dump(replay(t, got))); d != "" {
		t.Fatal(d)
	}
	for n := range want {
		if some := slices.Collect(func(y func(string) bool) {
			left := n
			f.Entries(func(e string) bool { left--; return left >= 0 && y(e) })
		}); len(some) != n {
			t.Fatalf("stopping after %d entries yielded %d", n, len(some))
		}
	}
}

func TestDetailKeepsTheSpec(t *testing.T) {
	zero, scope := 0, attach.ScopeLink
	spec := attach.Spec{
		Key: keyA, Instance: "/run/weft", Pod: attach.Pod{Namespace: "n", Name: "p", UID: "u"},
		MAC: attach.MAC{2, 0xab, 0, 0xff, 1, 9}, MTU: 1450,
		Addresses: []attach.Address{{Addr: netip.MustParseAddr("10.0.0.1"), Subnet: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.254")}},
		Routes:    []attach.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Table: &zero, Scope: &scope, MTU: 1400, AdvMSS: 1360, Priority: 5}},
		Sysctls:   []attach.Sysctl{{Key: "net.ipv4.conf.eth0.arp_filter", Value: "a <b> & c"}},
	}
	d := NewDetail(spec)
	d.Netns, d.NetnsID, d.Masquerade, d.Adopted = "/run/netns/a b", NetnsID{4, 4026531992}, true, true
	d.Pool = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}
	d.Delegate = &Delegate{Type: "host-local", Path: "/opt/cni/bin", Config: json.RawMessage("{ \"a\":\n1 }")}

	d.Answer = json.RawMessage("{\"dns\": {}\n}")

	m, f := must(t), New()
	apply(t, f, m(EncodeIntent(1, keyA, Veth, addrs("10.0.0.1"), d)))
	r, _ := f.Get(keyA)
	got, err := r.Detail()
	if err != nil {
		t.Fatal(err)
	}
	byText := cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
	if diff := cmp.Diff(spec, got.Spec(keyA, "/run/weft"), byText); diff != "" {
		t.Fatal(diff)
	}
	d.Delegate.Config, d.Answer = json.RawMessage(`{"a":1}`), json.RawMessage(`{"dns":{}}`)
	if diff := cmp.Diff(d, got, byText); diff != "" {
		t.Fatal(diff)
	}
	if !strings.Contains(r.detail, `"mac":"02:ab:00:ff:01:09"`) {
		t.Fatalf("the MAC is not readable in %s", r.detail)
	}
}

func TestDetailOfForeignText(t *testing.T) {
	for _, detail := range []string{`{"mac":"02:ab"}`, `{"mac":"02-ab-00-ff-01-09"}`, `{"mac":"0x:ab:00:ff:01:09"}`, `{"mtu":"big"}`, `{x}`} {
		f := New()
		apply(t, f, "intent 1 n/c/i veth - "+detail)
		r, _ := f.Get(attach.Key{Network: "n", ContainerID: "c", Ifname: "i"})
		if d, err := r.Detail(); err == nil || !strings.Contains(err.Error(), "n/c/i") {
			t.Errorf("%s: got %+v, %v; want an error that names the record", detail, d, err)
		}
	}
}

func TestRecordsAreValues(t *testing.T) {
	m, f := must(t), New()
	apply(t, f, m(EncodeIntent(1, keyA, Veth, addrs("10.0.0.1"), Detail{})))
	before, _ := f.Get(keyA)
	apply(t, f, m(EncodeReleased(2, keyA)), m(EncodeIntent(3, keyB, Veth, addrs("10.0.0.2"), Detail{MTU: 9})))
	if before.Key != keyA || before.Phase != Intent || before.Addresses[0] != addrs("10.0.0.1")[0] || before.detail != "{}" {
		t.Fatalf("the record changed under its reader: %+v", before)
	}
	n := 0
	for r := range f.Each {
		n++
		if r.Key != keyB {
			t.Fatalf("unexpected %+v", r)
		}
	}
	if n != 1 {
		t.Fatalf("Each yielded %d records", n)
	}
}

func TestTimesReachTheirLimit(t *testing.T) {
	const most = math.MaxInt64
	m, f := must(t), New()
	apply(t, f, m(EncodeIntent(most-1, keyA, Veth, nil, Detail{})), m(EncodeComplete(most, keyA)), m(EncodeSuspect(1, keyA)))
	if r, _ := replay(t, entriesOf(f)).Get(keyA); r.Created != most-1 || r.Since != most || r.Suspect != 1 {
		t.Fatalf("got %+v", r)
	}
}

func TestSiblings(t *testing.T) {
	m, f := must(t), New()
	in := func(network, container, ifname string) attach.Key {
		return attach.Key{Network: network, ContainerID: container, Ifname: ifname}
	}
	own := in("a", "c", "eth0")
	for i, k := range []attach.Key{
		own, in("a", "c", "eth1"), in("b", "c", "eth0"), // the container
		in("c", "d", "eth0"), in("a", "cc", "eth0"), in("a", "bc", "eth0"), in("c", "cd", "c"), in("a", "d", "c"), // others
	} {
		apply(t, f, m(EncodeIntent(int64(i+1), k, Veth, nil, Detail{})))
	}
	apply(t, f, m(EncodeReleased(9, in("a", "d", "c")))) // leaves an empty place
	for _, tc := range []struct {
		of   attach.Key
		want []string
	}{
		{own, []string{"a/c/eth1", "b/c/eth0"}},
		{in("new", "c", "eth0"), []string{"a/c/eth0", "a/c/eth1", "b/c/eth0"}}, // has no record yet
		{in("a", "e", "eth0"), nil},
		{in("a", "", "eth0"), nil},
	} {
		var got []string
		f.Siblings(tc.of, func(r Record) bool { got = append(got, r.Key.String()); return true })
		slices.Sort(got)
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("of %s: %s", tc.of, d)
		}
	}
	n := 0
	f.Siblings(own, func(Record) bool { n++; return false })
	if n != 1 {
		t.Fatalf("yielded %d after it was told to stop", n)
	}
}

func TestPhaseText(t *testing.T) {
	for p, want := range map[Phase]string{Intent: "intent", Complete: "complete", Releasing: "releasing", 0: "none", 'x': "phase(120)"} {
		if p.String() != want {
			t.Errorf("%d: %q, want %q", p, p, want)
		}
	}
}
