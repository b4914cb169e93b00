// SPDX-License-Identifier: Apache-2.0

package forward

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacyFamily is what differs between iptables-legacy and ip6tables-legacy:
// struct ipt_entry and struct ip6t_entry (linux/netfilter_ipv4/ip_tables.h,
// linux/netfilter_ipv6/ip6_tables.h). Offsets are in bytes from the entry's
// beginning.
type legacyFamily struct {
	family        byte
	table         string // for messages
	loaded        string // file of the tables that this namespace has
	domain, level int
	addrLen       int  // source, destination, and their masks come first
	ifnames       int  // input, output, and their masks
	proto         int  // uint16
	flags         int  // uint8; the next one says what is inverted
	goTo          byte // flag: a jump does not come back
	targetOffset  int  // uint16; the next one is the length with matches and target
	length        int  // of the entry, without matches and target
}

var legacyFamilies = []legacyFamily{
	{
		family: 4, table: legacyTable4, loaded: "/proc/thread-self/net/ip_tables_names",
		domain: unix.AF_INET, level: unix.SOL_IP,
		addrLen: 4, ifnames: 16, proto: 80, flags: 82, goTo: 0x02, targetOffset: 88, length: 112,
	},
	{
		family: 6, table: legacyTable6, loaded: "/proc/thread-self/net/ip6_tables_names",
		domain: unix.AF_INET6, level: unix.SOL_IPV6,
		addrLen: 16, ifnames: 64, proto: 128, flags: 131, goTo: 0x04, targetOffset: 140, length: 168,
	},
}

// legacyChains returns the FORWARD chains of iptables-legacy, which nftables
// does not show.
func legacyChains() (chains []baseChain, err error) {
	for _, f := range legacyFamilies {
		loaded, ferr := os.ReadFile(f.loaded)
		if ferr != nil && !errors.Is(ferr, fs.ErrNotExist) {
			err = errors.Join(err, ferr)
		}
		// Asking for a table that is not there would make it.
		if !slices.Contains(strings.Fields(string(loaded)), "filter") {
			continue
		}
		t, ferr := f.read()
		if ferr != nil {
			err = errors.Join(err, fmt.Errorf("read table %s: %w", f.table, ferr))
			continue
		}
		chains = append(chains, t.chain())
	}
	return chains, err
}

// Numbers of both headers, and of linux/netfilter/x_tables.h.
const (
	legacyGetInfo    = 64 // IPT_SO_GET_INFO
	legacyGetEntries = 65 // IPT_SO_GET_ENTRIES
	legacyNameLen    = 32
	legacyInfoLen    = 84 // struct ipt_getinfo
	legacyHeaderLen  = 40 // struct ipt_get_entries, without the entries

	targetHeaderLen = 32 // struct xt_entry_target: uint16 length, name, revision
	targetNameLen   = 29

	// Verdicts of the standard target; others are offsets to jump to.
	legacyDrop   = -1 // -NF_DROP - 1
	legacyAccept = -2 // -NF_ACCEPT - 1
	legacyReturn = -5 // XT_RETURN
)

// legacyTable is a table as the kernel has it: entries one behind the other.
type legacyTable struct {
	legacyFamily
	entries     []byte
	begin, last int // offsets of FORWARD's first entry and of its policy
}

func (f legacyFamily) read() (legacyTable, error) {
	t := legacyTable{legacyFamily: f}
	fd, err := unix.Socket(f.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return t, err
	}
	defer unix.Close(fd)
	info := make([]byte, legacyInfoLen)
	copy(info, "filter")
	if err := getsockopt(fd, f.level, legacyGetInfo, info); err != nil {
		return t, err
	}
	word := func(i int) int { return int(binary.NativeEndian.Uint32(info[legacyNameLen+4*i:])) }
	// valid_hooks, hook_entry[5], underflow[5], num_entries, size
	t.begin, t.last = word(1+unix.NF_INET_FORWARD), word(6+unix.NF_INET_FORWARD)
	size := word(12)
	all := make([]byte, legacyHeaderLen+size)
	copy(all, "filter")
	binary.NativeEndian.PutUint32(all[legacyNameLen:], uint32(size))
	if err := getsockopt(fd, f.level, legacyGetEntries, all); err != nil {
		return t, err
	}
	t.entries = all[legacyHeaderLen:]
	return t, nil
}

// getsockopt passes a buffer in and out, which package unix does not.
func getsockopt(fd, level, option int, buf []byte) error {
	length := uint32(len(buf))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (t legacyTable) chain() baseChain {
	b := baseChain{table: t.table, name: forwardChain, families: []byte{t.family}, policy: accept, rules: t.rules}
	if e, ok := t.entry(t.last); ok && e.rule.verdict == drop {
		b.policy = drop
	}
	for at := 0; ; {
		e, ok := t.entry(at)
		if !ok {
			return b
		}
		b.docker = b.docker || e.begins == dockerUser
		at = e.next
	}
}

// rules returns a chain's rules. Chains that others call are named by the
// offset of their first entry, as their callers do.
func (t legacyTable) rules(chain string) ([]rule, error) {
	at, end := t.begin, t.last
	if chain != forwardChain {
		var err error
		if at, err = strconv.Atoi(chain); err != nil {
			return nil, err
		}
		end = len(t.entries)
	}
	var rules []rule
	for at < end {
		e, ok := t.entry(at)
		if !ok {
			return nil, errors.New("entries that make no sense")
		}
		if e.begins != "" {
			break // the next chain
		}
		rules = append(rules, e.rule)
		at = e.next
	}
	return rules, nil
}

// legacyEntry is one entry: a rule, or the beginning of a chain.
type legacyEntry struct {
	rule   rule
	begins string // name of the chain that begins behind this entry
	next   int
}

func (t legacyTable) entry(at int) (legacyEntry, bool) {
	if at < 0 || at+t.length > len(t.entries) {
		return legacyEntry{}, false
	}
	raw := t.entries[at:]
	target := int(binary.NativeEndian.Uint16(raw[t.targetOffset:]))
	length := int(binary.NativeEndian.Uint16(raw[t.targetOffset+2:]))
	if target < t.length || target+targetHeaderLen+4 > length || length > len(raw) {
		return legacyEntry{}, false
	}
	e := legacyEntry{next: at + length, rule: t.conditions(raw)}
	e.rule.conditional = e.rule.conditional || target > t.length
	name, body := cString(raw[target+2:target+2+targetNameLen]), raw[target+targetHeaderLen:length]
	switch name {
	case "": // the standard target
		// A rule without a target is written as a jump to the entry behind.
		if v := int(int32(binary.NativeEndian.Uint32(body))); v != e.next {
			e.rule.decide(v, raw[t.flags]&t.goTo != 0)
		}
	case "ERROR":
		e.begins = cString(body) // of the last entry of all: ERROR
	case "REJECT":
		e.rule.verdict = drop
	}
	return e, true
}

// decide reads a verdict of the standard target.
func (r *rule) decide(v int, goTo bool) {
	switch {
	case v == legacyDrop:
		r.verdict = drop
	case v == legacyAccept:
		r.verdict = accept
	case v == legacyReturn:
		r.verdict = leave
	case v >= 0:
		r.verdict, r.target = call, strconv.Itoa(v)
		if goTo {
			r.verdict = follow
		}
	}
}

// conditions reads the part that matches addresses, interfaces and protocol.
func (t legacyTable) conditions(raw []byte) (r rule) {
	invert := raw[t.flags+1]
	for i, inverted := range []byte{0x08, 0x10} { // IPT_INV_SRCIP, IPT_INV_DSTIP
		addr, ok1 := netip.AddrFromSlice(raw[i*t.addrLen : (i+1)*t.addrLen])
		mask := raw[(i+2)*t.addrLen : (i+3)*t.addrLen]
		length := maskLength(mask)
		if !ok1 || length == 0 {
			continue
		}
		r.conditional = true
		if invert&inverted == 0 {
			r.spans = append(r.spans, spanOf(netip.PrefixFrom(addr, length)))
		}
	}
	for i, inverted := range []byte{0x01, 0x02} { // IPT_INV_VIA_IN, IPT_INV_VIA_OUT
		name := raw[t.ifnames+i*unix.IFNAMSIZ:][:unix.IFNAMSIZ]
		mask := raw[t.ifnames+(i+2)*unix.IFNAMSIZ:][:unix.IFNAMSIZ]
		compared := len(bytes.TrimRight(mask, "\x00")) // with the zero behind a complete name
		if compared == 0 {
			continue
		}
		r.conditional = true
		if invert&inverted == 0 {
			r.ifnames = append(r.ifnames, ifnameOf(name[:compared]))
		}
	}
	r.conditional = r.conditional || binary.NativeEndian.Uint16(raw[t.proto:]) != 0
	return r
}

func cString(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}
