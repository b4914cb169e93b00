// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"math"
	"net/netip"
	"strings"
)

// entry is one parsed entry; which fields are set depends on the verb. Strings
// are parts of the entry, not copies.
type entry struct {
	verb    string
	at      int64
	label   string // the key as text
	network string // its first part
	kind    Kind
	addrs   []netip.Addr
	text    string // of a new record: see slot; of a configuration: the JSON object

	phase                   Phase
	created, since, suspect int64
}

// parse reads text into an empty entry. The addresses are put into the memory
// of room, if that is large enough.
func (e *entry) parse(text string, room []netip.Addr) error {
	p := parser{rest: text}
	e.verb = p.next()
	switch e.verb {
	case "intent":
		e.at = p.time()
		p.holder(e, room)
	case "reserve":
		e.at = p.time()
		p.holder(e, room)
		if e.kind != IPAM {
			p.fail("kind", string(e.kind), `"ipam"`)
		}
	case "complete", "releasing", "released", "suspect", "cleared":
		e.at = p.time()
		p.label(e)
		p.end()
	case "config":
		e.at = p.time()
		e.text = p.rest
		p.object("config")
	case "record":
		p.record(e, room)
	case "freed":
		p.freed(e, room)
	default:
		p.fail("verb", e.verb, "one that this version of Weft knows")
	}
	return p.err
}

// parser walks over the fields and remembers the first error; after one it
// goes on harmlessly.
type parser struct {
	rest string
	err  error
}

func (p *parser) fail(field, value, want string) {
	if p.err == nil {
		p.err = syntax(field, value, want)
	}
}

// next returns the field before the next space, or all that is left.
func (p *parser) next() string {
	i := strings.IndexByte(p.rest, ' ')
	if i < 0 {
		f := p.rest
		p.rest = ""
		return f
	}
	f := p.rest[:i]
	p.rest = p.rest[i+1:]
	return f
}

func (p *parser) end() {
	if p.rest != "" {
		p.fail("end", p.rest, "nothing more")
	}
}

// maxDigits is the length of the largest int64.
const maxDigits = 19

func (p *parser) time() int64 {
	t := p.timeOrZero()
	if t == 0 {
		p.fail("time", "0", "unix nanoseconds, greater than zero")
	}
	return t
}

func (p *parser) timeOrZero() int64 {
	// Times were a third of the cost of a replay with next and strconv. 19
	// digits cannot overflow an uint64.
	var t uint64
	n := 0
	for n < len(p.rest) && n <= maxDigits && p.rest[n]-'0' <= 9 {
		t = t*10 + uint64(p.rest[n]-'0')
		n++
	}
	f := p.rest
	switch {
	case n == len(f):
		p.rest = ""
	case f[n] == ' ':
		p.rest = f[n+1:]
	default:
		n = 0
	}
	if n == 0 || n > maxDigits || t > math.MaxInt64 {
		f, _, _ = strings.Cut(f, " ")
		p.fail("time", f, "unix nanoseconds")
		return 0
	}
	return int64(t)
}

// label reads a key. The encoders are strict about its characters; here only
// its shape matters, because a checksum guards the rest.
func (p *parser) label(e *entry) {
	e.label = p.next()
	i := strings.IndexByte(e.label, '/')
	if i < 0 {
		i = 0
	}
	j := strings.LastIndexByte(e.label, '/')
	if i == 0 || j-i < 2 || j == len(e.label)-1 || strings.IndexByte(e.label[i+1:j], '/') >= 0 {
		p.fail("key", e.label, "network/containerID/ifname")
		return
	}
	e.network = e.label[:i]
}

// holder reads a key, a kind, addresses and a detail.
func (p *parser) holder(e *entry, room []netip.Addr) {
	e.text = p.rest
	p.label(e)
	e.kind = p.kind()
	e.addrs = p.addrs(room)
	p.object("detail")
}

// kind returns one of the constants, so that records do not keep parts of
// entries alive for it.
func (p *parser) kind() Kind {
	for _, k := range [...]Kind{Veth, IPAM} {
		if n := len(k); len(p.rest) > n && p.rest[:n] == string(k) && p.rest[n] == ' ' {
			p.rest = p.rest[n+1:]
			return k
		}
	}
	p.fail("kind", p.next(), `"veth" or "ipam"`)
	return ""
}

func (p *parser) addrs(room []netip.Addr) []netip.Addr {
	f := p.next()
	if f == "-" {
		return room[:0]
	}
	for more := true; more; {
		var one string
		one, f, more = strings.Cut(f, ",")
		room = append(room, p.addr(one))
	}
	return room
}

func (p *parser) addr(f string) netip.Addr {
	a, err := netip.ParseAddr(f)
	if err != nil || !isHost(a) {
		p.fail("address", f, "an IPv4 or IPv6 address without zone, not IPv4-mapped")
	}
	return a
}

func (p *parser) object(field string) {
	if !isObject(p.rest) {
		p.fail(field, p.rest, "a JSON object")
	}
}

func (p *parser) record(e *entry, room []netip.Addr) {
	phase := p.next()
	e.created, e.since, e.suspect = p.time(), p.time(), p.timeOrZero()
	p.holder(e, room)
	switch phase {
	case "I", "C", "R":
	default:
		p.fail("phase", phase, "I, C or R")
		return
	}
	e.phase = Phase(phase[0])
}

func (p *parser) freed(e *entry, room []netip.Addr) {
	e.at = p.time()
	e.kind = p.kind()
	e.network = p.next()
	if e.network == "" || (e.kind == Veth) != (e.network == "-") {
		p.fail("network", e.network, `a name, or "-" for kind veth`)
	}
	e.addrs = append(room, p.addr(p.next()))
	p.end()
}
