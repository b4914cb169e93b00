// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// This file reads tables of nftables. The library's own readers do not tell
// when a table changed while it was read.

// Attributes and messages of nf_tables.h.
const (
	nftGetTable     = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETTABLE
	nftGetRule      = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETRULE
	nftGetElements  = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETSETELEM
	nfnetlinkHeader = 4 // struct nfgenmsg: family, version, resource id
)

// rawData is a piece of a request, as it is.
type rawData []byte

func (r rawData) Len() int          { return len(r) }
func (r rawData) Serialize() []byte { return r }

// nftRead asks nftables for something of family inet.
func nftRead(kind int, op, object string, reply func(body []byte) error, attributes ...*nl.RtAttr) *message {
	header := rawData{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}
	return &message{op: "nftables: " + op, object: object, req: request(kind, 0, header, attributes...), reply: reply}
}

// withNFT lends fn a socket to nftables.
func (h *Handle) withNFT(fn func(c *conn) error) error {
	c, err := h.dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer c.close()
	return fn(c)
}

// masqueradeComments returns the comments of the rules in our chain, in order;
// none where the chain or the table is missing. It is one request that the
// kernel answers for this chain alone.
func (h *Handle) masqueradeComments(table string) (comments []string, err error) {
	err = h.withNFT(func(c *conn) error {
		comments, err = c.masqueradeComments(table)
		return err
	})
	return comments, err
}

func (c *conn) masqueradeComments(table string) ([]string, error) {
	return c.ruleComments(table, masqueradeChain)
}

// ruleComments returns the comments of the rules in a chain, "" standing for all
// chains; none where it is missing.
func (c *conn) ruleComments(table, chain string) ([]string, error) {
	var comments []string
	err := c.dumpStable(func() *message {
		comments = nil
		attributes := []*nl.RtAttr{text(unix.NFTA_RULE_TABLE, table)}
		if chain != "" {
			attributes = append(attributes, text(unix.NFTA_RULE_CHAIN, chain))
		}
		return nftRead(nftGetRule, "list rules of table", table, func(body []byte) error {
			comment, err := ruleComment(body)
			comments = append(comments, comment)
			return err
		}, attributes...)
	})
	if isErrno(err, unix.ENOENT) {
		return nil, nil
	}
	return comments, err
}

func ruleComment(body []byte) (comment string, err error) {
	err = parseAttrs(body, nfnetlinkHeader, func(kind int, v []byte) {
		if kind == unix.NFTA_RULE_USERDATA {
			comment = commentOf(v)
		}
	})
	return comment, err
}

// commentOf reads libnftnl's list of type, length, value, the comment first if
// there is one.
func commentOf(v []byte) string {
	if len(v) > 2 && v[0] == byte(userdata.TypeComment) && len(v) >= 2+int(v[1]) {
		return unix.ByteSliceToString(v[2 : 2+int(v[1])])
	}
	return ""
}

// rangeSet reads a set.
func (c *conn) rangeSet(table, name string, f natFamily) (ranges []addrRange, there bool, err error) {
	var elements []nftables.SetElement
	name += f.suffix()
	err = c.dumpStable(func() *message {
		elements = nil
		return nftRead(nftGetElements, "list elements of set", table+" "+name, func(body []byte) error {
			part, err := parseElements(body)
			elements = append(elements, part...)
			return err
		}, text(unix.NFTA_SET_ELEM_LIST_TABLE, table), text(unix.NFTA_SET_ELEM_LIST_SET, name))
	})
	if isErrno(err, unix.ENOENT) {
		return nil, false, nil
	}
	return fromIntervals(elements, f.ipv6), err == nil, err
}

// parseElements reads keys and the marks of range ends.
func parseElements(body []byte) (elements []nftables.SetElement, err error) {
	err = parseAttrs(body, nfnetlinkHeader, func(kind int, list []byte) {
		if kind != unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			return
		}
		_ = parseAttrs(list, 0, func(_ int, element []byte) {
			var e nftables.SetElement
			_ = parseAttrs(element, 0, func(kind int, v []byte) {
				switch kind {
				case unix.NFTA_SET_ELEM_FLAGS:
					e.IntervalEnd = len(v) == 4 && v[3]&unix.NFT_SET_ELEM_INTERVAL_END != 0
				case unix.NFTA_SET_ELEM_KEY:
					_ = parseAttrs(v, 0, func(kind int, key []byte) {
						if kind == unix.NFTA_DATA_VALUE {
							e.Key = slices.Clone(key)
						}
					})
				}
			})
			if addrOf(e.Key).IsValid() {
				elements = append(elements, e)
			}
		})
	})
	return elements, err
}
