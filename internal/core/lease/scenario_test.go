// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/core/cluster"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// A scenario is a file of commands; what "decide" answers follows it, indented.
//
//	pool NAME CIDR/BLOCKBITS... [reserved=P,P] [select=KEY=VALUE] [onrequest=yes]
//	node NAME [uid=U] [cidrs=P,P] [label=KEY=VALUE]  |  no node NAME
//	lease PREFIX NODE [pool=NAME] [uid=U] [age=D] [pod=P]  |  no lease PREFIX
//	block PREFIX [used=N] [cooling=N] [idle=D]       |  no block PREFIX
//	previous|released|taken|addresses P...
//	demand POOL...
//	network PREFIX DEV                               |  no network
//	peer NODE ADDRESS...                             |  no peer NODE
//	rejected PREFIX REASON...                        |  no rejected PREFIX
//	reachable yes|no
//	later DURATION
//	decide   the answer follows
//	apply    what decide answered becomes so
//
// The node that decides is called me.
type scenario struct {
	in   Input
	last Decision
	leap int
}

var epoch = time.Unix(1_000_000, 0)

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			old, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(old))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(old), got); diff != "" {
				t.Errorf("answers differ (-golden +now):\n%s", diff)
			}
		})
	}
}

func replay(t *testing.T, text string) string {
	s := &scenario{in: Input{
		Name: "me", Now: epoch.UnixNano(), Reachable: true, IdleAfter: int64(10 * time.Minute),
		Leases: map[string]cluster.Lease{}, Rejected: map[string]string{}, Nodes: map[string]cluster.Node{},
		Addresses: []netip.Addr{netip.MustParseAddr("198.18.1.1")},
	}}
	var out strings.Builder
	for n, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if strings.HasPrefix(line, "  ") {
			continue // an answer
		}
		fmt.Fprintln(&out, line)
		if line == "" || line[0] == '#' {
			continue
		}
		switch line {
		case "decide":
			s.last = s.decide(t)
			out.WriteString(describe(s.last, s.in.Now))
		case "apply":
			s.apply()
		default:
			if err := s.do(strings.Fields(line)); err != nil {
				t.Fatalf("line %d, %s: %v", n+1, line, err)
			}
		}
	}
	return out.String()
}

// decide also asks with everything told in another order and twice: the answer
// must be the same.
func (s *scenario) decide(t *testing.T) Decision {
	t.Helper()
	d := Decide(s.in)
	other := s.in
	other.Leases = map[string]cluster.Lease{}
	for _, l := range slices.Backward(sortedLeases(s.in.Leases)) {
		other.Leases[l.Name()] = l
	}
	other.Blocks, other.Taken = reversed(s.in.Blocks), reversed(s.in.Taken)
	for i, variant := range []Input{s.in, other, twice(s.in), twice(other)} {
		if diff := cmp.Diff(d, Decide(variant), comparePrefixes, compareAddrs); diff != "" {
			t.Errorf("variant %d decides otherwise:\n%s", i, diff)
		}
	}
	return d
}

var (
	comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	compareAddrs    = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
)

func reversed[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

func twice(in Input) Input {
	in.Demand = slices.Concat(in.Demand, in.Demand)
	in.Blocks = slices.Concat(in.Blocks, in.Blocks)
	in.Taken = slices.Concat(in.Taken, in.Taken)
	in.Previous = slices.Concat(in.Previous, in.Previous)
	in.Released = slices.Concat(in.Released, in.Released)
	in.Networks = slices.Concat(in.Networks, in.Networks)
	return in
}

func sortedLeases(m map[string]cluster.Lease) []cluster.Lease {
	var list []cluster.Lease
	for _, l := range m {
		list = append(list, l)
	}
	slices.SortFunc(list, bySubnet)
	return list
}

func (s *scenario) do(f []string) error {
	absent := f[0] == "no"
	if absent {
		f = f[1:]
	}
	opts := map[string]string{}
	var args []string
	for _, a := range f[1:] {
		if k, v, is := strings.Cut(a, "="); is {
			opts[k] = v
		} else {
			args = append(args, a)
		}
	}
	switch f[0] {
	case "pool":
		s.pool(args, opts)
	case "node":
		s.in.Node = nil
		if !absent {
			s.in.Node = &cluster.Node{Name: args[0], UID: opts["uid"], PodCIDRs: prefixes(opts["cidrs"]), Labels: map[string]string{}}
			if k, v, is := strings.Cut(opts["label"], "="); is {
				s.in.Node.Labels[k] = v
			}
		}
	case "lease":
		delete(s.in.Leases, cluster.LeaseName(netip.MustParsePrefix(args[0])))
		if !absent {
			s.lease(args, opts)
		}
	case "block":
		return s.block(netip.MustParsePrefix(args[0]), opts, absent)
	case "previous":
		s.in.Previous = prefixes(strings.Join(args, ","))
	case "released":
		s.in.Released = prefixes(strings.Join(args, ","))
	case "taken":
		s.in.Taken = prefixes(strings.Join(args, ","))
	case "demand":
		s.in.Demand = args
	case "addresses":
		s.in.Addresses = addresses(args)
	case "network":
		s.in.Networks = nil
		if !absent {
			s.in.Networks = []Network{{Prefix: netip.MustParsePrefix(args[0]), Dev: args[1]}}
		}
	case "peer":
		delete(s.in.Nodes, args[0])
		if !absent {
			s.in.Nodes[args[0]] = cluster.Node{Name: args[0], Addresses: addresses(args[1:])}
		}
	case "rejected":
		delete(s.in.Rejected, cluster.LeaseName(netip.MustParsePrefix(args[0])))
		if !absent {
			s.in.Rejected[cluster.LeaseName(netip.MustParsePrefix(args[0]))] = strings.Join(args[1:], " ")
		}
	case "reachable":
		s.in.Reachable = args[0] == "yes"
	case "later":
		s.in.Now += int64(duration(args[0]))
	default:
		return fmt.Errorf("unknown command")
	}
	return nil
}

func (s *scenario) pool(args []string, opts map[string]string) {
	p := cluster.Pool{Name: args[0], Reserved: prefixes(opts["reserved"]), OnRequest: opts["onrequest"] != ""}
	for _, a := range args[1:] {
		i := strings.LastIndex(a, "/")
		bits, _ := strconv.Atoi(a[i+1:])
		p.Ranges = append(p.Ranges, cluster.PoolRange{CIDR: netip.MustParsePrefix(a[:i]), BlockBits: bits})
	}
	if k, v, is := strings.Cut(opts["select"], "="); is {
		p.Selector = cluster.Selector{{Key: k, Operator: cluster.In, Values: []string{v}}}
	}
	s.in.Pools = slices.DeleteFunc(s.in.Pools, func(q cluster.Pool) bool { return q.Name == p.Name })
	if len(p.Ranges) > 0 { // a pool without ranges: none
		s.in.Pools = append(s.in.Pools, p)
	}
	slices.SortFunc(s.in.Pools, func(a, b cluster.Pool) int { return strings.Compare(a.Name, b.Name) })
}

func (s *scenario) lease(args []string, opts map[string]string) {
	l := cluster.Lease{Subnet: netip.MustParsePrefix(args[0]), Node: args[1], Pool: opts["pool"], UID: "given", NodeUID: opts["uid"], Pod: opts["pod"]}
	l.Created = s.in.Now - int64(duration(opts["age"]))
	if l.Node == "me" {
		l.Addresses, l.VTEP = s.in.Addresses, s.in.VTEP
	}
	s.in.Leases[l.Name()] = l
}

func (s *scenario) block(subnet netip.Prefix, opts map[string]string, absent bool) error {
	s.in.Blocks = slices.DeleteFunc(slices.Clone(s.in.Blocks), func(b Block) bool { return b.Subnet == subnet })
	if absent {
		return nil
	}
	used, _ := strconv.Atoi(opts["used"])
	cooling, _ := strconv.Atoi(opts["cooling"])
	p, _ := poolOf(s.in.Pools, subnet)
	b := Block{Subnet: subnet, Size: size(subnet, p.Reserved)}
	if uint64(used+cooling) > b.Size {
		return fmt.Errorf("has %d addresses only", b.Size)
	}
	b.Free = b.Size - uint64(used+cooling)
	if used == 0 {
		b.IdleSince = s.in.Now - int64(duration(opts["idle"]))
	}
	s.in.Blocks = append(s.in.Blocks, b)
	return nil
}

// apply is what a registry and an IPAM without failures make of a decision.
func (s *scenario) apply() {
	carryOut(&s.in, s.last, &s.leap)
	s.last = Decision{}
}

func carryOut(in *Input, d Decision, leap *int) {
	for _, l := range slices.Concat(d.Claim, d.Update) {
		if l.UID == "" {
			*leap++
			l.UID, l.Created = fmt.Sprintf("uid%d", *leap), in.Now
		}
		in.Leases[l.Name()] = l
	}
	for _, l := range d.Release {
		delete(in.Leases, l.Name())
		in.Released = append(slices.Clone(in.Released), l.Subnet)
	}
	var blocks []Block
	for _, b := range in.Blocks {
		if b.IdleSince == 0 || slices.ContainsFunc(d.Serve, func(l cluster.Lease) bool { return l.Subnet == b.Subnet }) {
			blocks = append(blocks, b)
		}
	}
	for _, l := range slices.Concat(d.Serve, d.Claim) {
		if !slices.ContainsFunc(blocks, func(b Block) bool { return b.Subnet == l.Subnet }) {
			p, _ := poolOf(in.Pools, l.Subnet)
			n := size(l.Subnet, p.Reserved)
			blocks = append(blocks, Block{Subnet: l.Subnet, Size: n, Free: n, IdleSince: 1})
		}
	}
	in.Blocks = blocks
}

func describe(d Decision, now int64) string {
	var b strings.Builder
	for _, part := range []struct {
		verb   string
		leases []cluster.Lease
	}{{"serve", d.Serve}, {"claim", d.Claim}, {"update", d.Update}, {"release", d.Release}} {
		for _, l := range part.leases {
			fmt.Fprintf(&b, "  %s %s", part.verb, l.Subnet)
			if part.verb == "claim" || part.verb == "update" {
				fmt.Fprintf(&b, " pool=%s uid=%s addresses=%v", l.Pool, l.NodeUID, l.Addresses)
			}
			b.WriteString("\n")
		}
	}
	for _, w := range d.Waiting {
		fmt.Fprintf(&b, "  waiting: %s\n", w)
	}
	if d.Next != 0 {
		fmt.Fprintf(&b, "  next in %s\n", time.Duration(d.Next-now))
	}
	if b.Len() == 0 {
		return "  nothing\n"
	}
	return b.String()
}

func prefixes(list string) []netip.Prefix {
	var out []netip.Prefix
	for p := range strings.SplitSeq(list, ",") {
		if p != "" {
			out = append(out, netip.MustParsePrefix(p))
		}
	}
	return out
}

func addresses(list []string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func duration(s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}
