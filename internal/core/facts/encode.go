// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

// All encoders take the time in unix nanoseconds, greater than zero, and
// return a *SyntaxError for a value that cannot be written. They do not know
// the facts: whether an entry fits is decided by Apply.

// EncodeIntent says that an attachment is about to be made with these
// addresses. It replaces the key's record, if there is one.
func EncodeIntent(at int64, k attach.Key, kind Kind, addrs []netip.Addr, d Detail) (string, error) {
	var w writer
	w.verb("intent", at)
	w.key(k)
	w.kind(kind)
	w.addrs(addrs)
	w.field(w.detail(d))
	return w.entry()
}

// EncodeComplete says that the intent has become real.
func EncodeComplete(at int64, k attach.Key) (string, error) { return encodeStep("complete", at, k) }

// EncodeReserve makes a complete record of kind IPAM at once: nothing but the
// journal has to change for it.
func EncodeReserve(at int64, k attach.Key, addrs []netip.Addr, d Detail) (string, error) {
	var w writer
	w.verb("reserve", at)
	w.key(k)
	w.kind(IPAM)
	w.addrs(addrs)
	w.field(w.detail(d))
	return w.entry()
}

// EncodeReleasing says that DEL began.
func EncodeReleasing(at int64, k attach.Key) (string, error) { return encodeStep("releasing", at, k) }

// EncodeReleased ends the record and frees its addresses.
func EncodeReleased(at int64, k attach.Key) (string, error) { return encodeStep("released", at, k) }

// EncodeSuspect says that the record's sandbox was seen dead. A record that is
// suspected already keeps the time of its first suspicion.
func EncodeSuspect(at int64, k attach.Key) (string, error) { return encodeStep("suspect", at, k) }

// EncodeCleared takes the suspicion back.
func EncodeCleared(at int64, k attach.Key) (string, error) { return encodeStep("cleared", at, k) }

func encodeStep(verb string, at int64, k attach.Key) (string, error) {
	var w writer
	w.verb(verb, at)
	w.key(k)
	return w.entry()
}

// EncodeConfig keeps the effective network configuration, a JSON object.
func EncodeConfig(at int64, rawJSON string) (string, error) {
	var w writer
	w.verb("config", at)
	w.field(w.object("config", rawJSON))
	return w.entry()
}

// writer builds one entry and remembers the first error.
type writer struct {
	b   []byte
	err error
}

func (w *writer) entry() (string, error) {
	if w.err != nil {
		return "", w.err
	}
	return string(w.b), nil
}

func (w *writer) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *writer) verb(verb string, at int64) {
	w.b = append(w.b, verb...)
	if at <= 0 {
		w.fail(syntax("time", strconv.FormatInt(at, 10), "unix nanoseconds, greater than zero"))
	}
	w.number(at)
}

func (w *writer) field(s string) {
	w.b = append(append(w.b, ' '), s...)
}

func (w *writer) number(n int64) {
	w.b = strconv.AppendInt(append(w.b, ' '), n, 10)
}

func (w *writer) key(k attach.Key) {
	if !isName(k.Network) {
		w.fail(syntax("network", k.Network, "letters, digits, '_', '.', '-', beginning with a letter or digit"))
	}
	if !isName(k.ContainerID) {
		w.fail(syntax("container id", k.ContainerID, "letters, digits, '_', '.', '-', beginning with a letter or digit"))
	}
	if !isIfname(k.Ifname) {
		w.fail(syntax("interface name", k.Ifname, "1 to 15 bytes without '/', ':' and blanks, not '.' or '..'"))
	}
	w.b = append(append(append(append(append(append(w.b, ' '), k.Network...), '/'), k.ContainerID...), '/'), k.Ifname...)
}

func (w *writer) kind(k Kind) {
	if k != Veth && k != IPAM {
		w.fail(syntax("kind", string(k), `"veth" or "ipam"`))
	}
	w.field(string(k))
}

func (w *writer) addrs(addrs []netip.Addr) {
	if len(addrs) == 0 {
		w.field("-")
		return
	}
	sep := byte(' ')
	for _, a := range addrs {
		if !isHost(a) {
			w.fail(syntax("address", a.String(), "an IPv4 or IPv6 address without zone, not IPv4-mapped"))
		}
		w.b = a.AppendTo(append(w.b, sep))
		sep = ','
	}
}

func (w *writer) detail(d Detail) string {
	b, err := json.Marshal(d)
	if err != nil {
		w.fail(syntax("detail", err.Error(), "a value that JSON can hold"))
	}
	return string(b)
}

// object returns raw on one line.
func (w *writer) object(field, raw string) string {
	var b bytes.Buffer
	b.Grow(len(raw))
	if err := json.Compact(&b, []byte(raw)); err != nil || !isObject(b.String()) {
		w.fail(syntax(field, raw, "a JSON object"))
	}
	return b.String()
}

// isName reports whether s is legal as a network name or container id: CNI
// specification, sections 1 and 2.
func isName(s string) bool {
	if s == "" || strings.IndexByte("_.-", s[0]) >= 0 {
		return false
	}
	for _, c := range []byte(s) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && strings.IndexByte("_.-", c) < 0 {
			return false
		}
	}
	return true
}

// isIfname follows dev_valid_name of the kernel, and keeps to ASCII as the
// runtimes do.
func isIfname(s string) bool {
	if s == "" || len(s) > 15 || s == "." || s == ".." {
		return false
	}
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '/' || c == ':' {
			return false
		}
	}
	return true
}

// isHost reports whether a can be the address of a host beyond one link.
func isHost(a netip.Addr) bool { return a.IsValid() && !a.Is4In6() && a.Zone() == "" }

func isObject(s string) bool {
	return len(s) >= 2 && s[0] == '{' && s[len(s)-1] == '}'
}
