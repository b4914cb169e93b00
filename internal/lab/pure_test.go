// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"pgregory.net/rapid"

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
		{"two nodes", func(s *Spec) { s.Nodes = 2 }, []string{"nodes 2"}},
		{"host bits", func(s *Spec) { s.Subnets = prefixes("10.42.0.1/24") }, []string{"10.42.0.1/24", "10.42.0.0/24"}},
		{"overlap", func(s *Spec) { s.Subnets = prefixes("10.42.0.0/16", "10.42.3.0/24") }, []string{"10.42.3.0/24: overlaps", "10.42.0.0/16"}},
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
		nodes := rapid.IntRange(1, 200).Draw(t, "nodes")
		segments := rapid.IntRange(1, nodes).Draw(t, "segments")
		topo, err := NewTopology(nodes, segments)
		if err != nil {
			t.Fatal(err)
		}
		used := map[netip.Addr]bool{}
		use := func(p netip.Prefix) {
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

func TestTopologyLimits(t *testing.T) {
	for _, tc := range [][2]int{{0, 0}, {0, 1}, {1, 0}, {1, 2}, {201, 1}, {-1, -1}} {
		if _, err := NewTopology(tc[0], tc[1]); err == nil {
			t.Errorf("%d nodes on %d segments: no error", tc[0], tc[1])
		}
	}
}

func TestTopologyOfOneNode(t *testing.T) {
	topo, err := NewTopology(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(topo, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "topology-1-1.json", append(text, '\n'))
	if got := topo.Machines(); !slices.Equal(got, []string{"outside", "node1"}) {
		t.Errorf("machines %v", got)
	}
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
	text, err := agentYAML(l, "node1", DefaultSubnets())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "agent.yaml", text)
	if _, err := v1alpha1.ParseAgentConfiguration(text); err != nil {
		t.Errorf("the agent refuses its configuration: %v", err)
	}
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
		Nodes: []NodeStatus{{Name: "node1", Segment: "segment1", Addrs: prefixes("198.18.1.11/24"), Agent: "running (process 7)", Network: OK}},
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
	s.Nodes[0].Network = "STATUS: no"
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
