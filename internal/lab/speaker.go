// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"

	"weft.dev/weft/internal/kernel"
)

// speaker is a pod, or the outside, as it takes part in Check and Stream.
type speaker struct {
	name   string
	ns     *kernel.Netns
	addrs  []netip.Addr // at most one per family counts, the first
	abroad []netip.Addr // what the outside sees it as: the addresses of its node
}

func (s speaker) close() { s.ns.Close() }

// familyName is that of an address, for people.
func familyName(a netip.Addr) string {
	if a.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// inFamilyOf returns the first address of the same family as a.
func inFamilyOf(a netip.Addr, addrs []netip.Addr) (netip.Addr, bool) {
	for _, b := range addrs {
		if a.Is4() == b.Is4() {
			return b, true
		}
	}
	return netip.Addr{}, false
}

// families returns the first address of each family.
func families(addrs []netip.Addr) []netip.Addr {
	var first []netip.Addr
	for _, a := range addrs {
		if _, have := inFamilyOf(a, first); !have {
			first = append(first, a)
		}
	}
	return first
}

// speakers opens the namespaces of all pods that are complete. Close them.
func (l *lab) speakers() ([]speaker, error) {
	pods, err := l.pods()
	if err != nil {
		return nil, err
	}
	var all []speaker
	for _, p := range pods {
		if !p.complete() {
			continue
		}
		s, err := l.podSpeaker(p)
		if err != nil {
			closeAll(all)
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func closeAll(all []speaker) {
	for _, s := range all {
		s.close()
	}
}

func (l *lab) podSpeaker(p Pod) (speaker, error) {
	node, err := l.topo.Node(p.Node)
	if err != nil {
		return speaker{}, err
	}
	ns, err := openNetns(l.l.netns(p.Name))
	if err != nil {
		return speaker{}, err
	}
	return speaker{name: p.Name, ns: ns, addrs: bare(p.Addresses), abroad: bare(node.Addrs)}, nil
}

func (l *lab) outsideSpeaker() (speaker, error) {
	ns, err := openNetns(l.l.netns(OutsideName))
	if err != nil {
		return speaker{}, err
	}
	return speaker{name: OutsideName, ns: ns, addrs: bare(l.topo.Outside)}, nil
}

func bare(prefixes []netip.Prefix) []netip.Addr {
	var addrs []netip.Addr
	for _, p := range prefixes {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}
