// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"weft.dev/weft/internal/registry"
	"weft.dev/weft/test/apiserver"
)

func TestReading(t *testing.T) {
	// The API server would refuse what is wrong by itself; what older definitions
	// let in is for the registry to refuse.
	s := newServer(t)
	s.ApplyCRDs(looseDefinitions(t))
	s.Apply(nodeManifest("n1", "192.0.2.1") + nodeManifest("n2", "192.0.2.2") + podManifest("mine", "n1") + podManifest("other", "n2") +
		poolManifest("default", "10.42.0.0/16") +
		ourGroup + "kind: AddressClaim\nmetadata: {name: web-0, namespace: default}\nspec: {ipv4: 10.42.3.7}\n")
	s.MustKubectl("", "patch", "node", "n1", "--subresource=status", "--type=merge", "-p", `{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}`)
	c := synced(t, s, "n1")

	t.Run("what there is", func(t *testing.T) {
		c.store.View(func(s *registry.State) {
			if got := slices.Sorted(maps.Keys(s.Nodes)); !slices.Equal(got, []string{"n1", "n2"}) {
				t.Errorf("nodes %v", got)
			}
			if s.Nodes["n1"].Labels["zone"] != "a" || s.Nodes["n2"].Labels != nil || s.Nodes["n1"].UID == "" {
				t.Errorf("nodes %+v: want the labels of this one only", s.Nodes)
			}
			if got := s.Nodes["n1"].Addresses; !slices.Equal(got, []netip.Addr{netip.MustParseAddr("192.0.2.1")}) {
				t.Errorf("addresses %v", got)
			}
			if got := slices.Sorted(maps.Keys(s.Pods)); !slices.Equal(got, []string{"default/mine"}) {
				t.Errorf("pods %v, want those of this node", got)
			}
			if p := s.Pods["default/mine"]; !maps.Equal(p.Annotations, map[string]string{"weft.dev/pool": "blue"}) || p.Created == 0 {
				t.Errorf("pod %+v", p)
			}
			if _, there := s.Namespaces["kube-system"]; !there || s.Pools["default"].Ranges[0].BlockBits != 24 || len(s.Claims["default/web-0"].Addresses) != 1 {
				t.Errorf("namespaces %v, pools %v, claims %v", s.Namespaces, s.Pools, s.Claims)
			}
		})
	})
	t.Run("what changes", func(t *testing.T) {
		s.Apply(poolManifest("more", "10.43.0.0/16"))
		c.eventually("there is another pool", func(s *registry.State) bool { return len(s.Pools) == 2 })
		s.MustKubectl("", "delete", "ippool", "more")
		c.eventually("it is gone", func(s *registry.State) bool { return len(s.Pools) == 1 })
		s.MustKubectl("", "delete", "pod", "mine", "--force", "--grace-period=0")
		c.eventually("the pod is gone", func(s *registry.State) bool { return len(s.Pods) == 0 })
	})
	t.Run("heartbeats of peers", func(t *testing.T) { heartbeats(t, s, c) })
	t.Run("rejection by name", func(t *testing.T) { rejections(t, s, c) })
	t.Run("few requests", func(t *testing.T) {
		// One stream for each kind, and no list.
		for _, resource := range []string{nodes, namespaces, pods, ippools, subnetleases, addressclaims} {
			if n := c.requests("watch " + resource + " 200"); n != 1 || c.requests("list "+resource+" 200") > 0 {
				t.Errorf("%d watches of %s; all requests: %v", n, resource, c.asked)
			}
		}
	})
}

// heartbeats: what says nothing new of a node is no change.
func heartbeats(t *testing.T, s *apiserver.Server, c *client) {
	before := uint64(0)
	c.store.View(func(s *registry.State) { before = s.Revision })
	for _, at := range []string{"2026-01-01T00:00:00Z", "2026-01-01T00:00:10Z"} {
		s.MustKubectl("", "patch", "node", "n2", "--subresource=status", "-p",
			`{"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "`+at+`"}]}}`)
	}
	// What comes after on the same watch is seen.
	s.Apply(nodeManifest("n3", "192.0.2.3"))
	c.eventually("there is another node", func(s *registry.State) bool { return len(s.Nodes) == 3 })
	c.store.View(func(s *registry.State) {
		// n3 comes, and another apply may give it its status.
		if s.Revision > before+2 {
			t.Errorf("revision %d after %d: heartbeats are changes", s.Revision, before)
		}
	})
}

// rejections: a wrong object keeps its last good version, and harms no other.
func rejections(t *testing.T, s *apiserver.Server, c *client) {
	s.Apply(poolManifest("default", "10.42.0.1/16"))
	c.eventually("the pool is refused", func(s *registry.State) bool {
		return strings.Contains(s.Rejected["IPPool default"], "it should be 10.42.0.0/16")
	})
	c.store.View(func(s *registry.State) {
		if len(s.Pools["default"].Ranges) != 1 || s.Pools["default"].Ranges[0].CIDR != netip.MustParsePrefix("10.42.0.0/16") {
			t.Errorf("pool %+v, want the last good version", s.Pools["default"])
		}
	})
	again := synced(t, s, "n1") // which never saw a good version
	again.store.View(func(s *registry.State) {
		if len(s.Pools) != 0 || len(s.Nodes) != 3 || s.Rejected["IPPool default"] == "" {
			t.Errorf("pools %v, nodes %v, rejected %v", s.Pools, s.Nodes, s.Rejected)
		}
	})
	s.Apply(poolManifest("default", "10.42.0.0/16"))
	c.eventually("nothing is refused", func(s *registry.State) bool { return len(s.Rejected) == 0 })
	s.Apply(poolManifest("bad", "10.44.0.1/16"))
	c.eventually("the new one is", func(s *registry.State) bool { return len(s.Rejected) == 1 })
	s.MustKubectl("", "delete", "ippool", "bad")
	c.eventually("it is forgotten", func(s *registry.State) bool { return len(s.Rejected) == 0 })
}

// The server goes away and comes back: contact is lost and found, nothing is
// lost, and what went away meanwhile goes away here too.
func TestOutage(t *testing.T) {
	s := newCluster(t)
	s.Apply(nodeManifest("n1", "192.0.2.1") + poolManifest("stays", "10.42.0.0/16") + poolManifest("goes", "10.43.0.0/16"))
	c := synced(t, s, "n1")
	if err := c.Create(t.Context(), lease("10.42.3.0/24", "n1")); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	c.eventually("contact is lost", func(s *registry.State) bool { return s.Err != nil && s.Synced })
	c.store.View(func(s *registry.State) {
		if len(s.Pools) != 2 || len(s.Nodes) != 1 || len(s.Leases) != 1 {
			t.Errorf("pools %v, nodes %v, leases %v: losing contact changed something", s.Pools, s.Nodes, s.Leases)
		}
	})
	if err := c.Create(t.Context(), lease("10.42.4.0/24", "n1")); err == nil {
		t.Error("a lease was created without a server")
	}
	s.DeleteFromEtcd("weft.dev/ippools/goes")
	s.Compact()
	s.Start()
	c.eventually("contact is found", func(s *registry.State) bool { return s.Err == nil })
	c.store.View(func(s *registry.State) {
		if _, there := s.Pools["stays"]; !there || len(s.Pools) != 1 || len(s.Nodes) != 1 || len(s.Leases) != 1 {
			t.Errorf("pools %v, nodes %v, leases %v", s.Pools, s.Nodes, s.Leases)
		}
	})
	if err := c.Create(t.Context(), lease("10.42.4.0/24", "n1")); err != nil {
		t.Error(err)
	}
	s.Apply(poolManifest("new", "10.44.0.0/16"))
	c.eventually("what is new comes", func(s *registry.State) bool { return len(s.Pools) == 2 })
}

// What can be wrong at the start is waited for, and said.
func TestFirstContact(t *testing.T) {
	s := newServer(t)
	for _, one := range []struct {
		name string
		test func(*testing.T, *apiserver.Server)
	}{
		{"late definitions", lateDefinitions}, {"spec of another shape", otherShape}, {"no server", noServer}, {"forbidden", forbidden},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(t, s) })
	}
}

// lateDefinitions: they are asked for by name. Those that come leave the shape
// of pools open.
func lateDefinitions(t *testing.T, s *apiserver.Server) {
	c := run(t, s, "n1")
	for _, name := range []string{"ippools.weft.dev", "subnetleases.weft.dev", "addressclaims.weft.dev", "install"} {
		c.eventually("the error names "+name, func(s *registry.State) bool {
			return !s.Synced && s.Err != nil && strings.Contains(s.Err.Error(), name)
		})
	}
	s.ApplyCRDs(looseDefinitions(t))
	c.eventually("synced", func(s *registry.State) bool { return s.Synced && s.Err == nil })
}

// otherShape: a spec that cannot even be decoded stops nothing but itself.
func otherShape(t *testing.T, s *apiserver.Server) {
	s.Apply(poolManifest("default", "10.42.0.0/16") + ourGroup + "kind: IPPool\nmetadata: {name: odd}\nspec: {ipv4: [1]}\n" +
		ourGroup + "kind: IPPool\nmetadata: {name: text}\nspec: none\n" + ourGroup + "kind: IPPool\nmetadata: {name: empty}\n")
	c := synced(t, s, "n1")
	c.store.View(func(s *registry.State) {
		rejected := slices.Sorted(maps.Keys(s.Rejected))
		if len(s.Pools) != 1 || !slices.Equal(rejected, []string{"IPPool empty", "IPPool odd", "IPPool text"}) {
			t.Errorf("pools %v, rejected %v", s.Pools, s.Rejected)
		}
	})
}

func noServer(t *testing.T, s *apiserver.Server) {
	s.Stop()
	t.Run("stopped meanwhile", func(t *testing.T) {
		c := run(t, s, "n1") // which has to end soon, though it waits for the next attempt
		apiserver.Eventually(t, func() error {
			if n := c.requests("watch nodes 0"); n < 5 {
				return fmt.Errorf("%d attempts", n)
			}
			return nil
		})
	})
	c := run(t, s, "n1")
	c.eventually("it is said why", func(s *registry.State) bool {
		return !s.Synced && s.Err != nil && strings.Contains(s.Err.Error(), "connection refused") && !strings.Contains(s.Err.Error(), "sendInitialEvents")
	})
	s.Start()
	c.eventually("synced", func(s *registry.State) bool { return s.Synced && s.Err == nil })
}

func forbidden(t *testing.T, s *apiserver.Server) {
	s.MustKubectl("", "delete", "clusterrolebinding", "weft-agent")
	c := run(t, s, "n1")
	c.eventually("it is said what is missing", func(s *registry.State) bool {
		return s.Err != nil && strings.Contains(s.Err.Error(), "ClusterRole") && strings.Contains(s.Err.Error(), "nodes is forbidden")
	})
}

// looseDefinitions returns a directory with Weft's definitions, where pools may
// have any shape.
func looseDefinitions(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(apiserver.Repository(t, "deploy/chart/crds/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		loose := string(text)
		if strings.Contains(file, "ippools") {
			at := strings.Index(loose, "openAPIV3Schema:")
			end := strings.Index(loose, "    served: true")
			loose = loose[:at] + "openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}\n" + loose[end:]
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(loose), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpenMistakes(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(bad, []byte("]["), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"no node":       {Config{Kubeconfig: bad}, "want the name of this node"},
		"bad file":      {Config{Kubeconfig: bad, Node: "n1"}, bad},
		"no file":       {Config{Kubeconfig: bad + "x", Node: "n1"}, bad + "x"},
		"not in a pod":  {Config{Node: "n1"}, "service account"},
		"bad server":    {Config{Kubeconfig: bad, Server: "::", Node: "n1"}, bad},
		"server in pod": {Config{Server: "https://192.0.2.1", Node: "n1"}, "service account"},
	} {
		if _, err := Open(c.config, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
