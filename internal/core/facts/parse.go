// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"net/netip"
	"strconv"
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
	detail  string

	phase                   Phase
	created, since, suspect int64
}

// parse reads an entry. Addresses are appended to room, which saves an
// allocation per record of a long journal.
func parse(text string, room []netip.Addr) (entry, error) {
	if strings.IndexByte(text, '\n') >= 0 {
		return entry{}, syntax("text", text, "one line")
	}
	p := parser{rest: text}
	e := entry{verb: p.next()}
	switch e.verb {
	case "intent":
		e.at = p.time()
		p.holder(&e, room)
		e.detail = p.object("detail", p.rest)
	case "reserve":
		e.at = p.time()
		p.holder(&e, room)
		p.reservation(&e)
		e.detail = p.object("detail", p.rest)
	case "complete", "releasing", "released", "suspect", "cleared":
		e.at = p.time()
		p.label(&e)
		p.end()
	case "config":
		e.at = p.time()
		e.detail = p.object("config", p.rest)
	case "record":
		p.record(&e, room)
	case "freed":
		p.freed(&e)
	default:
		p.fail("verb", e.verb, "one that this version of Weft knows")
	}
	return e, p.err
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

func (p *parser) time() int64 {
	t := p.timeOrZero()
	if t == 0 {
		p.fail("time", "0", "unix nanoseconds, greater than zero")
	}
	return t
}

func (p *parser) timeOrZero() int64 {
	f := p.next()
	t, err := strconv.ParseInt(f, 10, 64)
	if err != nil || t < 0 {
		p.fail("time", f, "unix nanoseconds")
		return 0
	}
	return t
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

// holder reads a key, a kind and addresses.
func (p *parser) holder(e *entry, room []netip.Addr) {
	p.label(e)
	e.kind = p.kind()
	e.addrs = p.addrs(room)
}

// kind returns one of the constants, so that records do not keep parts of
// entries alive for it.
func (p *parser) kind() Kind {
	switch f := p.next(); f {
	case string(Veth):
		return Veth
	case string(IPAM):
		return IPAM
	default:
		p.fail("kind", f, `"veth" or "ipam"`)
		return ""
	}
}

func (p *parser) addrs(room []netip.Addr) []netip.Addr {
	f := p.next()
	if f == "-" {
		return nil
	}
	start := len(room)
	for more := true; more; {
		var one string
		one, f, more = strings.Cut(f, ",")
		room = append(room, p.addr(one))
	}
	return room[start:len(room):len(room)]
}

func (p *parser) addr(f string) netip.Addr {
	a, err := netip.ParseAddr(f)
	if err != nil || !isHost(a) {
		p.fail("address", f, "an IPv4 or IPv6 address without zone, not IPv4-mapped")
	}
	return a
}

func (p *parser) object(field, s string) string {
	if !isObject(s) {
		p.fail(field, s, "a JSON object")
	}
	return s
}

func (p *parser) reservation(e *entry) {
	if e.kind != IPAM {
		p.fail("kind", string(e.kind), `"ipam"`)
	}
}

func (p *parser) record(e *entry, room []netip.Addr) {
	phase := p.next()
	e.created, e.since, e.suspect = p.time(), p.time(), p.timeOrZero()
	p.holder(e, room)
	e.detail = p.object("detail", p.rest)
	switch phase {
	case "I", "C", "R":
	default:
		p.fail("phase", phase, "I, C or R")
		return
	}
	e.phase = Phase(phase[0])
}

func (p *parser) freed(e *entry) {
	e.at = p.time()
	e.kind = p.kind()
	e.network = p.next()
	if e.network == "" || (e.kind == Veth) != (e.network == "-") {
		p.fail("network", e.network, `a name, or "-" for kind veth`)
	}
	e.addrs = []netip.Addr{p.addr(p.next())}
	p.end()
}
