// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"weft.dev/weft/internal/core/attach"
)

// Sets of the table, with the family's digit behind.
const (
	anySet     = "any"     // protocol . port : pod address . port, on every address of the host
	oneSet     = "one"     // address . protocol . port : pod address . port, on this one
	hairpinSet = "hairpin" // pod address . pod address: a pod that uses its own port
)

// portElement is one element of a set, as the kernel has it: fields of a
// concatenation begin at multiples of four bytes.
type portElement struct {
	set       string
	key, data []byte // data nil: the set is no map
	comment   string
}

// portElements returns what a plan needs of the table.
func portElements(p attach.Plan) []portElement {
	comment := portComment(p)
	var list []portElement
	for _, m := range p.Ports {
		e := portElement{set: anySet + suffixOf(m.Pod.Addr()), comment: comment}
		if a := m.Host.Addr(); !a.IsUnspecified() {
			e.set = oneSet + suffixOf(a)
			e.key = a.AsSlice()
		}
		e.key = appendPort(append(e.key, byte(m.Protocol), 0, 0, 0), m.Host.Port())
		e.data = appendPort(m.Pod.Addr().AsSlice(), m.Pod.Port())
		hairpin := portElement{
			set: hairpinSet + suffixOf(m.Pod.Addr()), comment: comment,
			key: append(m.Pod.Addr().AsSlice(), m.Pod.Addr().AsSlice()...),
		}
		list = append(list, e)
		if !contains(list, hairpin) {
			list = append(list, hairpin)
		}
	}
	return list
}

func contains(list []portElement, e portElement) bool {
	for _, other := range list {
		if other.sameKey(e) {
			return true
		}
	}
	return false
}

func suffixOf(a netip.Addr) string { return natFamily{ipv6: a.Is6()}.suffix() }

func appendPort(b []byte, port uint16) []byte {
	return append(binary.BigEndian.AppendUint16(b, port), 0, 0)
}

func (e portElement) sameKey(o portElement) bool { return e.set == o.set && bytes.Equal(e.key, o.key) }

func (e portElement) same(o portElement) bool {
	return e.sameKey(o) && bytes.Equal(e.data, o.data) && e.comment == o.comment
}

// owner returns the host end of the attachment that the element belongs to.
func (e portElement) owner() string {
	name, _, _ := strings.Cut(e.comment, " ")
	return name
}

// attachment returns the key that the comment tells; zero if it was cut.
func (e portElement) attachment() attach.Key {
	fields := strings.Fields(e.comment)
	if len(fields) < 2 {
		return attach.Key{}
	}
	if k, err := attach.ParseKey(fields[1]); err == nil && k.HostIfname() == fields[0] {
		return k
	}
	return attach.Key{}
}

// mapping is the inverse of portElements. It reports false for what is none.
func (e portElement) mapping() (m attach.Mapping, ok bool) {
	ipv6 := strings.HasSuffix(e.set, "6")
	size := 4
	if ipv6 {
		size = 16
	}
	host, rest := netip.IPv4Unspecified(), e.key
	if ipv6 {
		host = netip.IPv6Unspecified()
	}
	switch {
	case strings.HasPrefix(e.set, oneSet) && len(e.key) == size+8:
		host, rest = addrOf(e.key[:size]), e.key[size:]
	case strings.HasPrefix(e.set, anySet) && len(e.key) == 8:
	default:
		return m, false
	}
	if len(e.data) != size+4 {
		return m, false
	}
	m.Protocol = attach.Protocol(rest[0])
	m.Host = netip.AddrPortFrom(host, binary.BigEndian.Uint16(rest[4:]))
	m.Pod = netip.AddrPortFrom(addrOf(e.data[:size]), binary.BigEndian.Uint16(e.data[size:]))
	return m, true
}

func (e portElement) describe() string {
	if m, ok := e.mapping(); ok {
		return "port " + m.String()
	}
	return "element of set " + e.set
}

// add fails where the key is taken.
func (e portElement) add() *message {
	children := []*nl.RtAttr{nested(unix.NFTA_SET_ELEM_KEY, nl.NewRtAttr(unix.NFTA_DATA_VALUE, e.key))}
	if e.data != nil {
		children = append(children, nested(unix.NFTA_SET_ELEM_DATA, nl.NewRtAttr(unix.NFTA_DATA_VALUE, e.data)))
	}
	children = append(children, nl.NewRtAttr(unix.NFTA_SET_ELEM_USERDATA, userdata.AppendString(nil, userdata.TypeComment, e.comment)))
	return e.message(unix.NFT_MSG_NEWSETELEM, "add", create, children...)
}

func (e portElement) delete() *message {
	return e.message(unix.NFT_MSG_DELSETELEM, "delete", 0, nested(unix.NFTA_SET_ELEM_KEY, nl.NewRtAttr(unix.NFTA_DATA_VALUE, e.key)))
}

func (e portElement) message(kind int, verb string, flags int, children ...*nl.RtAttr) *message {
	return nftMessage(kind, flags, verb+" element", e.set+" ("+e.describe()+")",
		text(unix.NFTA_SET_ELEM_LIST_TABLE, HostPortTable), text(unix.NFTA_SET_ELEM_LIST_SET, e.set),
		nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, nested(unix.NFTA_LIST_ELEM, children...)))
}

// parsePortElements reads one answer of a dump.
func parsePortElements(set string, body []byte) (elements []portElement, err error) {
	err = parseAttrs(body, nfnetlinkHeader, func(kind int, list []byte) {
		if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		_ = parseAttrs(list, 0, func(_ int, element []byte) {
			e := portElement{set: set}
			_ = parseAttrs(element, 0, func(kind int, v []byte) {
				switch kind {
				case unix.NFTA_SET_ELEM_KEY:
					e.key = dataValue(v)
				case unix.NFTA_SET_ELEM_DATA:
					e.data = dataValue(v)
				case unix.NFTA_SET_ELEM_USERDATA:
					e.comment = commentOf(v)
				}
			})
			elements = append(elements, e)
		})
	})
	return elements, err
}

func dataValue(v []byte) (value []byte) {
	_ = parseAttrs(v, 0, func(kind int, b []byte) {
		if kind == unix.NFTA_DATA_VALUE {
			value = bytes.Clone(b)
		}
	})
	return value
}
