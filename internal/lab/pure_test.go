// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/view"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expected, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(expected) {
		t.Errorf("%s: got\n%s\nwant\n%s\n(-update rewrites it)", path, got, expected)
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var ps []netip.Prefix
	for _, s := range texts {
		ps = append(ps, netip.MustParsePrefix(s))
	}
	return ps
}

func TestSpecValidate(t *testing.T) {
	valid := Spec{}.WithDefaults()
	if err := valid.Validate(); err != nil {
		t.Fatalf("the default spec: %v", err)
	}
	for _, tc := range []struct {
		name   string
		change func(*Spec)
		want   []string
	}{
		{"name with a slash", func(s *Spec) { s.Name = "../x" }, []string{"lab name", `"../x"`}},
		{"name too long", func(s *Spec) { s.Name = strings.Repeat("a", 64) }, []string{"lab name"}},
		{"mode", func(s *Spec) { s.Mode = "medium" }, []string{`"medium"`, "thick", "thin"}},
		{"family", func(s *Spec) { s.Family = "ipv5" }, []string{`"ipv5"`, "ipv4", "ipv6", "dual"}},
		{"backend", func(s *Spec) { s.Backend = "pigeon" }, []string{`"pigeon"`, "auto", "vxlan", "native"}},
		{"no node", func(s *Spec) { s.Nodes = 0 }, []string{"nodes 0", "1 to 200"}},
		{"too many nodes", func(s *Spec) { s.Nodes = 201 }, []string{"nodes 201", "1 to 200"}},
		{"no segment", func(s *Spec) { s.Segments = 0 }, []string{"segments 0"}},
		{"more segments than nodes", func(s *Spec) { s.Nodes, s.Segments = 3, 4 }, []string{"segments 4", "3"}},
		{"thin, two nodes", func(s *Spec) { s.Mode, s.Backend, s.Nodes = Thin, "", 2 }, []string{"nodes 2", "thin"}},
		{"thin, backend", func(s *Spec) { s.Mode = Thin }, []string{`"auto"`, "thin"}},
		{"two pools of a family", func(s *Spec) { s.Subnets = prefixes("10.42.0.0/16", "10.43.0.0/16") }, []string{"10.43.0.0/16", "one per family", "10.42.0.0/16"}},
		{"host bits", func(s *Spec) { s.Subnets = prefixes("10.42.0.1/24") }, []string{"10.42.0.1/24", "10.42.0.0/24"}},
		{"overlap", func(s *Spec) { s.Mode, s.Backend, s.Subnets = Thin, "", prefixes("10.42.0.0/16", "10.42.3.0/24") }, []string{"10.42.3.0/24: overlaps", "10.42.0.0/16"}},
		{"underlay", func(s *Spec) { s.Subnets = prefixes("198.18.7.0/24") }, []string{"198.18.7.0/24", "198.18.0.0/15"}},
		{"zero subnet", func(s *Spec) { s.Subnets = []netip.Prefix{{}} }, []string{"subnet"}},
		{"relative directory", func(s *Spec) { s.PluginDirs = []string{"bin"} }, []string{`"bin"`, "absolute"}},
		{"two things at once", func(s *Spec) { s.Name, s.Mode = "", "x" }, []string{"lab name", "mode"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := valid
			tc.change(&s)
			wantError(t, s.Validate(), tc.want...)
		})
	}
}

func TestValidatePodName(t *testing.T) {
	for name, ok := range map[string]bool{
		"a": true, "web-1": true, "node": true, "nodex": true, "outsider": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, "A": false, "a.b": false, "a/b": false, "..": false, "a b": false,
		"node1": false, "node17": false, "outside": false, "segment2": false, strings.Repeat("a", 64): false,
	} {
		if err := ValidatePodName(name); (err == nil) != ok {
			t.Errorf("%q: error %v, want valid %v", name, err, ok)
		}
	}
}

// TestTopologyProperties: every address is used once and lies in its segment's
// subnet, every node's gateway is its segment's, segments differ by at most one
// node.
func TestTopologyProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, MaxNodes).Draw(t, "nodes")
		segments := rapid.IntRange(1, nodes).Draw(t, "segments")
		family := rapid.SampledFrom([]Family{IPv4, IPv6, Dual}).Draw(t, "family")
		topo := NewTopology(family, nodes, segments)
		perFamily := map[Family]int{IPv4: 1, IPv6: 1, Dual: 2}[family]
		used := map[netip.Addr]bool{}
		use := func(p netip.Prefix) {
			if !family.has(p.Addr()) {
				t.Fatalf("%s is not of family %s", p, family)
			}
			if used[p.Addr()] {
				t.Fatalf("%s is used twice", p.Addr())
			}
			used[p.Addr()] = true
		}
		bySegment := map[string]Segment{}
		load := map[string]int{}
		for _, s := range topo.Segments {
			bySegment[s.Name] = s
			for _, gw := range s.Gateways {
				use(gw)
			}
		}
		for _, n := range topo.Nodes {
			load[n.Segment]++
			if len(n.Addrs) != perFamily || len(n.Gateways) != perFamily || len(topo.Outside) != perFamily {
				t.Fatalf("%s has addresses %v and gateways %v, the outside %v", n.Name, n.Addrs, n.Gateways, topo.Outside)
			}
			for i, a := range n.Addrs {
				use(a)
				gw := bySegment[n.Segment].Gateways[i]
				if gw.Masked() != a.Masked() || n.Gateways[i] != gw.Addr() {
					t.Fatalf("%s: %s has gateway %s, its segment's is %s", n.Name, a, n.Gateways[i], gw)
				}
			}
		}
		for _, a := range topo.Outside {
			use(a)
		}
		if len(topo.Nodes) != nodes || len(load) != segments {
			t.Fatalf("%d nodes on %d segments, want %d on %d", len(topo.Nodes), len(load), nodes, segments)
		}
		for name, n := range load {
			if n < nodes/segments || n > nodes/segments+1 {
				t.Fatalf("%s has %d of %d nodes on %d segments", name, n, nodes, segments)
			}
		}
	})
}

// TestFreeNumber: a node that goes makes room for the next, and no other node
// is moved.
func TestFreeNumber(t *testing.T) {
	topo := NewTopology(Dual, 4, 2)
	if got := topo.freeNumber(); got != 5 {
		t.Errorf("after 1 to 4 comes %d", got)
	}
	topo.Nodes = slices.Delete(topo.Nodes, 1, 2)
	if got := topo.freeNumber(); got != 2 {
		t.Errorf("after 1, 3 and 4 comes %d", got)
	}
	again := placeNode(Dual, 2, inTurn(2, 2))
	if want := NewTopology(Dual, 4, 2).Nodes[1]; !slices.Equal(again.Addrs, want.Addrs) || again.Segment != want.Segment {
		t.Errorf("node2 placed again: %+v, want %+v", again, want)
	}
}

func TestTopologyOfOneNode(t *testing.T) {
	topo := NewTopology(Dual, 1, 1)
	text, err := json.MarshalIndent(topo, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "topology-1-1.json", append(text, '\n'))
	if _, err := topo.Node("node2"); err == nil {
		t.Error("node2: no error")
	}
	if n, err := topo.Node(""); err != nil || n.Name != "node1" {
		t.Errorf("the first node: %v, %v", n.Name, err)
	}
}

// TestWrittenFiles compares with golden files, and lets the readers of the
// files read them.
func TestWrittenFiles(t *testing.T) {
	l := layout("/run/weft-lab/lab")
	text, err := agentYAML(l, "node1", Auto)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "agent.yaml", text)
	if _, err := v1alpha1.ParseAgentConfiguration(text); err != nil {
		t.Errorf("the agent refuses its configuration: %v", err)
	}
	text, err = poolYAML(defaultSubnets(Thick, Dual))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "pool.yaml", text)
	var pool v1alpha1.IPPool
	if err := yaml.UnmarshalStrict(text, &pool); err != nil {
		t.Errorf("the pool is not read: %v", err)
	}
	pool.Default()
	if errs := pool.Validate(); len(errs) > 0 || pool.Spec.IPv4 == nil || pool.Spec.IPv6 == nil {
		t.Errorf("the pool is refused: %v", errs)
	}
	text, err = nodeYAML(placeNode(Dual, 7, 2), "00000000-0000-4000-8000-000000000000")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "node.yaml", text)
	for _, mode := range []Mode{Thick, Thin} {
		text, err := networkConflist(l, "node1", Spec{Mode: mode}.WithDefaults())
		if err != nil {
			t.Fatal(err)
		}
		golden(t, string(mode)+".conflist", text)
		list, err := libcni.NetworkConfFromBytes(text)
		if err != nil || list.Name != Network || len(list.Plugins) != 1 {
			t.Errorf("%s: libcni reads %+v, %v", mode, list, err)
		}
	}
}

// TestLeases: what is no lease of Weft's is passed over, and unregistering a
// node deletes its leases only.
func TestLeases(t *testing.T) {
	l := layout(t.TempDir())
	for path, text := range map[string]string{
		l.manifest("node1"):             "kind: Node",
		l.manifest("node2"):             "kind: Node",
		l.lease("10-42-3-0-24"):         leaseText("10-42-3-0-24", "10.42.3.0/24", "node1"),
		l.lease("10-42-4-0-24"):         leaseText("10-42-4-0-24", "10.42.4.0/24", "node2"),
		l.lease("fd00-42-0-1-0-0-0-64"): "\x00 garbage",
		l.lease("10-42-5-0-24"):         leaseText("10-42-9-0-24", "10.42.9.0/24", "node1"),
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	leases, err := l.leases()
	if err != nil || len(leases) != 2 {
		t.Fatalf("leases %+v, %v; want two", leases, err)
	}
	if !holds(leases, "node1", netip.MustParsePrefix("10.42.0.0/16")) || holds(leases, "node1", netip.MustParsePrefix("10.42.4.0/22")) {
		t.Errorf("leases of node1: %+v", leases)
	}
	for range 2 {
		if err := l.unregister("node1"); err != nil {
			t.Error(err)
		}
	}
	leases, err = l.leases()
	if err != nil || len(leases) != 1 || !leases[0].of("node2") {
		t.Errorf("leases %+v, %v; want node2's alone", leases, err)
	}
	if _, err := os.Stat(l.manifest("node1")); !os.IsNotExist(err) {
		t.Errorf("the Node object: %v", err)
	}
	if _, err := os.Stat(l.manifest("node2")); err != nil {
		t.Errorf("the other Node object: %v", err)
	}
}

func leaseText(name, subnet, node string) string {
	return "metadata:\n  name: " + name + "\n  ownerReferences: [{apiVersion: v1, kind: Node, name: " + node + "}]\nspec: {subnet: \"" + subnet + "\"}\n"
}

func TestUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	a, b := newUID(), newUID()
	if !form.MatchString(a) || a == b {
		t.Errorf("UIDs %s and %s", a, b)
	}
}

// TestJudge: one bad exchange is enough, and so is nothing at all.
func TestJudge(t *testing.T) {
	pairs := []Pair{{From: "a", To: "b"}, {From: "b", To: "a"}}
	if err := Judge(pairs); err != nil {
		t.Error(err)
	}
	pairs[1].UDP.Error = "seen as 192.0.2.1"
	wantError(t, Judge(pairs), "1 of 2")
	if err := Judge(nil); !errors.Is(err, ErrNoPair) {
		t.Errorf("nothing: %v", err)
	}
}

// TestTalksBetween: one per family that both have, by the first address; none
// to the outside where the node has no address of the family.
func TestTalksBetween(t *testing.T) {
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, s := range texts {
			all = append(all, netip.MustParseAddr(s))
		}
		return all
	}
	a := speaker{name: "a", addrs: addrs("10.0.0.1", "10.0.0.2", "fd00::1"), abroad: addrs("192.0.2.1")}
	b := speaker{name: "b", addrs: addrs("fd00::2", "10.0.0.3")}
	got := talksBetween(a, b, a.addrs)
	if len(got) != 2 || got[0].target != b.addrs[1] || got[0].source != a.addrs[0] || got[1].target != b.addrs[0] {
		t.Errorf("a to b: %+v", got)
	}
	if got := talksBetween(a, b, a.abroad); len(got) != 1 || got[0].source != a.abroad[0] {
		t.Errorf("a to the outside: %+v", got)
	}
	if got := talksBetween(speaker{addrs: addrs("10.0.0.1")}, speaker{addrs: addrs("fd00::2")}, addrs("10.0.0.1")); len(got) != 0 {
		t.Errorf("no family in common: %+v", got)
	}
}

// TestDefaultRoutes: a family without a subnet has no default route.
func TestDefaultRoutes(t *testing.T) {
	for _, tc := range []struct {
		subnets []netip.Prefix
		want    string
	}{
		{prefixes("10.42.0.0/24"), `[{"dst":"0.0.0.0/0"}]`},
		{prefixes("fd00::/64"), `[{"dst":"::/0"}]`},
		{prefixes("fd00::/64", "10.42.0.0/24", "10.43.0.0/24"), `[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`},
	} {
		got, err := json.Marshal(defaultRoutes(tc.subnets))
		if err != nil || string(got) != tc.want {
			t.Errorf("%v: %s, %v; want %s", tc.subnets, got, err, tc.want)
		}
	}
}

func TestStatusTable(t *testing.T) {
	s := Status{
		Name: "lab", Mode: Thick, Dir: "/run/weft-lab/lab", Outside: prefixes("203.0.113.1/32"),
		Nodes: []NodeStatus{{Name: "node1", Segment: "segment1", Addrs: prefixes("198.18.1.11/24"), Link: LinkUp, Agent: "running (process 7)", Network: OK}},
		Pods: []PodStatus{
			{Pod{Name: "a", Node: "node1", Addresses: prefixes("10.42.0.2/32", "fd00:42::2/128"), AddMillis: 3.14}, OK},
			{Pod{Name: "b", Node: "node1"}, "half made:\nADD did not come to its end"},
		},
	}
	for _, format := range []view.Format{view.Table, view.JSON, view.YAML} {
		var b strings.Builder
		if err := s.Write(&b, format); err != nil {
			t.Fatal(err)
		}
		golden(t, "status."+string(format), []byte(b.String()))
	}
	if s.Healthy() {
		t.Error("healthy with a pod that is half made")
	}
	s.Pods = s.Pods[:1]
	if !s.Healthy() {
		t.Error("not healthy")
	}
	s.Nodes[0].Link = LinkCut
	if s.Healthy() {
		t.Error("healthy with a link that is cut")
	}
	s.Nodes[0].Link, s.Nodes[0].Network = LinkUp, "STATUS: no"
	if s.Healthy() {
		t.Error("healthy with a node that is not ready")
	}
}

func TestMachineDiff(t *testing.T) {
	a, b := Machine{"file x", "link 1 lo"}, Machine{"link 1 lo", "mount y"}
	if got := a.Diff(b); !slices.Equal(got, []string{"+ mount y", "- file x"}) {
		t.Errorf("diff %v", got)
	}
	if got := a.Diff(a); len(got) != 0 {
		t.Errorf("diff with itself %v", got)
	}
}
