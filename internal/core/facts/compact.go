// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
)

// Entries yields the shortest list of entries that rebuilds these facts, in an
// order that depends on the facts alone: the configuration, the released
// addresses of each scope in the order of their release, the records by key.
func (f *Facts) Entries(yield func(string) bool) {
	var w writer
	if f.config != "" {
		w.verb("config", f.configAt)
		w.field(f.config)
		if !yield(string(w.b)) {
			return
		}
	}
	for _, s := range f.scopeOrder() {
		more := true
		f.scopes[s].Released(func(a netip.Addr, at int64) bool {
			w.b = w.b[:0]
			w.freed(s, a, at)
			more = yield(string(w.b))
			return more
		})
		if !more {
			return
		}
	}
	for _, i := range f.order() {
		w.b = w.b[:0]
		w.record(&f.slots[i])
		if !yield(string(w.b)) {
			return
		}
	}
}

// Live returns the number of entries that Entries yields.
func (f *Facts) Live() int {
	n := f.Len()
	if f.config != "" {
		n++
	}
	for _, u := range f.scopes {
		u.Released(func(netip.Addr, int64) bool { n++; return true })
	}
	return n
}

func (f *Facts) scopeOrder() []scope {
	return slices.SortedFunc(maps.Keys(f.scopes), func(a, b scope) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.network, b.network))
	})
}

func (w *writer) freed(s scope, a netip.Addr, at int64) {
	w.verb("freed", at)
	w.field(string(s.kind))
	if s.kind == Veth {
		w.field("-")
	} else {
		w.field(s.network)
	}
	w.b = a.AppendTo(append(w.b, ' '))
}

func (w *writer) record(s *slot) {
	w.b = append(w.b, "record "...)
	w.b = append(w.b, byte(s.phase))
	w.number(s.created)
	w.number(s.since)
	w.number(s.suspect)
	w.field(s.text)
}
