// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/delta"
)

// The tests speak a small language, a command per line:
//
//	self node1 uplink0=198.18.1.11/24,1500 backend=vxlan vni=1 port=8472 mtu=1400 checksum
//	node node2 node3
//	forget node2
//	lease 10.42.5.0/24 node2 at=198.18.1.12,fd00:1::12 created=5 vtep=none
//	lease 10.42.5.7/32 node3 at=198.18.1.13 created=6 pod=prod/db-0
//	drop 10.42.5.0/24
//
// A VTEP is by default what this node needs; vtep=7:4789 is another VNI and
// port, vtep=02:00:00:00:00:01 another MAC.

// world is what the commands have said so far.
type world struct {
	self   Self
	nodes  map[string]bool
	leases map[string]cluster.Lease
}

func newWorld() *world {
	return &world{nodes: map[string]bool{}, leases: map[string]cluster.Lease{}}
}

func (w *world) compute() (Objects, []Reach) {
	return Compute(w.self, w.nodes, slices.Collect(maps.Values(w.leases)))
}

// run carries a command out on a Map, if there is one, and on the world.
func (w *world) run(t rapid.TB, m *Map, command string) {
	t.Helper()
	verb, rest, _ := strings.Cut(command, " ")
	args := strings.Fields(rest)
	switch verb {
	case "self":
		w.self = parseSelf(t, args)
		m.SetSelf(w.self)
	case "node", "forget":
		for _, name := range args {
			w.nodes[name] = verb == "node"
			m.SetNode(name, verb == "node")
		}
	case "lease":
		l := parseLease(t, args)
		w.leases[l.Name()] = l
		m.SetLease(l)
	case "drop":
		name := cluster.LeaseName(netip.MustParsePrefix(args[0]))
		delete(w.leases, name)
		m.DeleteLease(name)
	default:
		t.Fatalf("unknown command %q", command)
	}
}

func parseSelf(t rapid.TB, args []string) Self {
	t.Helper()
	s := Self{Node: args[0], Backend: Auto, VNI: 1, Port: 8472}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "backend":
			s.Backend = Backend(value)
		case "vni":
			s.VNI = uint32(number(t, value))
		case "port":
			s.Port = uint16(number(t, value))
		case "mtu":
			s.MTU = number(t, value)
		case "checksum":
			s.Checksum = true
		default:
			prefix, mtu, _ := strings.Cut(value, ",")
			s.Underlay = append(s.Underlay, Underlay{Addr: netip.MustParsePrefix(prefix), Dev: key, MTU: number(t, mtu)})
		}
	}
	return s
}

func parseLease(t rapid.TB, args []string) cluster.Lease {
	t.Helper()
	l := cluster.Lease{
		Subnet: netip.MustParsePrefix(args[0]), Node: args[1],
		VTEP: cluster.VTEP{MAC: cluster.VTEPMAC(args[1]), VNI: 1, Port: 8472},
	}
	for _, arg := range args[2:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "created":
			l.Created = int64(number(t, value))
		case "pod":
			l.Pod = value
		case "at":
			for a := range strings.SplitSeq(value, ",") {
				l.Addresses = append(l.Addresses, netip.MustParseAddr(a))
			}
		case "vtep":
			l.VTEP = parseVTEP(t, l.VTEP, value)
		default:
			t.Fatalf("unknown argument %q", arg)
		}
	}
	return l
}

func parseVTEP(t rapid.TB, ours cluster.VTEP, value string) cluster.VTEP {
	t.Helper()
	switch strings.Count(value, ":") {
	case 0:
		return cluster.VTEP{}
	case 1:
		vni, port, _ := strings.Cut(value, ":")
		ours.VNI, ours.Port = uint32(number(t, vni)), uint16(number(t, port))
	default:
		for i, octet := range strings.Split(value, ":") {
			b, err := strconv.ParseUint(octet, 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			ours.MAC[i] = byte(b)
		}
	}
	return ours
}

func number(t rapid.TB, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func newObjects() Objects {
	return Objects{
		Links: map[LinkKey]Wanted[Link]{}, Addresses: map[AddressKey]Wanted[Address]{},
		Neighbours: map[NeighbourKey]Wanted[Neighbour]{}, FDB: map[FDBKey]Wanted[FDB]{},
		Routes: map[RouteKey]Wanted[Route]{},
	}
}

// fold applies updates, and refuses those that are not ascending or no
// difference. It returns them as lines.
func fold(o Objects, u Updates) (lines []string, err error) {
	for _, lineup := range []func() ([]string, error){
		func() ([]string, error) { return foldKind(o.Links, u.Links) },
		func() ([]string, error) { return foldKind(o.Addresses, u.Addresses) },
		func() ([]string, error) { return foldKind(o.Neighbours, u.Neighbours) },
		func() ([]string, error) { return foldKind(o.FDB, u.FDB) },
		func() ([]string, error) { return foldKind(o.Routes, u.Routes) },
	} {
		more, err := lineup()
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func foldKind[K delta.Key[K], V comparable](held map[K]Wanted[V], updates []Update[K, V]) ([]string, error) {
	var lines []string
	for i, u := range updates {
		was, had := held[u.Key]
		switch {
		case i > 0 && updates[i-1].Key.Compare(u.Key) >= 0:
			return nil, fmt.Errorf("update of %v follows that of %v", u.Key, updates[i-1].Key)
		case u.Gone && u.Wanted != Wanted[V]{}:
			return nil, fmt.Errorf("update of %v: gone with a value: %+v", u.Key, u.Wanted)
		case u.Gone && !had, !u.Gone && had && was == u.Wanted:
			return nil, fmt.Errorf("update of %v is no difference: %+v", u.Key, u)
		case u.Gone:
			delete(held, u.Key)
			lines = append(lines, "- "+line(u.Key, was))
			continue
		case had:
			lines = append(lines, "~ "+line(u.Key, u.Wanted))
		default:
			lines = append(lines, "+ "+line(u.Key, u.Wanted))
		}
		held[u.Key] = u.Wanted
	}
	return lines, nil
}

// describe returns objects as lines.
func describe(o Objects) []string {
	return slices.Concat(describeKind(o.Links), describeKind(o.Addresses), describeKind(o.Neighbours),
		describeKind(o.FDB), describeKind(o.Routes))
}

func describeKind[K delta.Key[K], V comparable](held map[K]Wanted[V]) (lines []string) {
	for _, k := range slices.SortedFunc(maps.Keys(held), K.Compare) {
		lines = append(lines, line(k, held[k]))
	}
	return lines
}

// line returns an object as ip(8) would, with a name for each VTEP's MAC.
func line[V comparable](key any, w Wanted[V]) string {
	text := ""
	switch k := key.(type) {
	case LinkKey:
		l := any(w.Value).(Link)
		text = fmt.Sprintf("link %s vni %d port %d local %s mac %s mtu %d", k, l.VNI, l.Port, l.Local, owner(l.MAC), l.MTU)
		if l.Checksum {
			text += " checksum"
		}
	case AddressKey:
		text = fmt.Sprintf("address %s dev %s", k.Addr, k.Dev)
	case NeighbourKey:
		text = fmt.Sprintf("neighbour %s lladdr %s dev %s", k.Addr, owner(any(w.Value).(Neighbour).MAC), k.Dev)
	case FDBKey:
		text = fmt.Sprintf("fdb %s dst %s dev %s", owner(k.MAC), any(w.Value).(FDB).Dst, k.Dev)
	case RouteKey:
		r := any(w.Value).(Route)
		text = fmt.Sprintf("route %s via %s dev %s", k.Dst, r.Gateway, r.Dev)
		if r == (Route{}) {
			text = fmt.Sprintf("route unreachable %s", k.Dst)
		}
		if k.Local {
			text += " table local"
		}
		if k.LastResort {
			text += " last resort"
		}
	}
	return text + " # " + w.Origin
}

func owner(mac attach.MAC) string {
	for i := range 10 {
		if node := fmt.Sprintf("node%d", i); cluster.VTEPMAC(node) == mac {
			return "<" + node + ">"
		}
	}
	return mac.String()
}

func describeReach(reach []Reach) (lines []string) {
	for _, r := range reach {
		text := fmt.Sprintf("reach %s %s of %s: %s", r.Lease, r.Subnet, r.Node, r.Way)
		if r.Via.IsValid() || r.Dev != "" {
			text += fmt.Sprintf(" via %s dev %s", r.Via, r.Dev)
		}
		if r.Reason != "" {
			text += ": " + r.Reason
		}
		lines = append(lines, text)
	}
	return lines
}

func describeRejected(rejected map[string]string) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(rejected)) {
		lines = append(lines, fmt.Sprintf("rejected %s: %s", name, rejected[name]))
	}
	return lines
}

// check compares a Map, of which held has all updates so far, with Compute.
func (w *world) check(m *Map, held Objects) error {
	objects, _ := w.compute()
	return cmp.Or(w.checkViews(m), same("objects", describe(held), describe(objects)))
}

// checkViews compares what needs no Updates.
func (w *world) checkViews(m *Map) error {
	_, reach := w.compute()
	var rejected []string
	for _, r := range reach {
		// This node has a way to each of its own leases, unless it is rejected.
		if r.Node == w.self.Node && r.Way == Unreachable {
			rejected = append(rejected, fmt.Sprintf("rejected %s: %s", r.Lease, r.Reason))
		}
	}
	return cmp.Or(
		same("rejected", describeRejected(m.Rejected()), rejected),
		same("reach", describeReach(m.Reach()), describeReach(reach)),
	)
}

func same(what string, got, want []string) error {
	if slices.Equal(got, want) {
		return nil
	}
	return fmt.Errorf("%s step by step:\n  %s\nfrom scratch:\n  %s",
		what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
}
