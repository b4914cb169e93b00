// SPDX-License-Identifier: Apache-2.0

package facts

import "net/netip"

// addrRoom hands out space for the addresses of many records from few
// allocations. Space that was handed out is never reused, so records may keep
// their slices for ever.
type addrRoom struct {
	free []netip.Addr // length 0; capacity is what is left
}

// Two addresses, one per family, is what a record usually has; rooms are kept
// small, because one record that lives keeps a whole room alive.
const (
	addrsPerRecord = 2
	maxRoom        = 128
)

// expect makes room for the addresses of that many records, up to maxRoom.
func (r *addrRoom) expect(records int) {
	if cap(r.free) == 0 {
		r.free = make([]netip.Addr, 0, min(records*addrsPerRecord, maxRoom))
	}
}

// keep marks addrs as handed out, if they were appended to free.
func (r *addrRoom) keep(addrs []netip.Addr) {
	n := len(addrs)
	if n == 0 || cap(r.free) == 0 {
		return
	}
	if n <= cap(r.free) && &r.free[:1][0] == &addrs[0] {
		r.free = r.free[n:n:cap(r.free)]
	}
	if cap(r.free) < addrsPerRecord {
		r.free = make([]netip.Addr, 0, maxRoom)
	}
}
