// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"weft.dev/weft/internal/registry/convert"
	"weft.dev/weft/test/cluster"
)

// suite is a cluster with Weft, and what the tests know of it.
type suite struct {
	*cluster.Cluster
	objects dynamic.Interface // Weft's kinds
	made    *artifacts
	way     way // in which Weft is installed
	traces  *collector
	// ran is how many tests have begun, and all how many there are: fewer begin
	// where somebody chose some by -run.
	ran atomic.Int32
	all int32

	mu   sync.Mutex
	kept []string // tests of which there is evidence
}

// test is one entry of the table.
type test struct {
	name string
	run  func(t *testing.T, s *suite)
}

// together share the cluster at the same time: none of them disturbs another.
var together = []test{
	{"traffic between pods", testPodTraffic},
	{"traffic between pods and nodes", testNodeTraffic},
	{"services", testServices},
	{"names", testNames},
	{"addresses on request", testFixed},
	{"pools on request", testPools},
	{"small pools", testSmallPools},
	{"reserved too late", testReservedTooLate},
	{"wrong annotations", testRefusals},
	{"corrected annotations", testMended},
	{"sticky addresses", testSticky},
	{"sticky addresses of nobody", testAway},
	{"host ports", testHostPorts},
	{"host port conflict", testHostPortConflict},
	{"host ports at one address", testHostIP},
	{"host port of a flow", testHostPortFlow},
	{"sticky pod deleted by force", testStickyForced},
	{"address of nobody", testNobody},
	{"wrong pools", testWrongPools},
	{"mistaken pool", testMistakenPool},
}

// alone come after them, in this order: each changes what others rely on, or
// wants the machine to itself.
var alone = []test{
	{"bandwidth", testBandwidth},
	{"sequence", testSequence},
	{"drained node", testDrain},
	{"metrics", testMetrics},
	{"wrong values", testWrongValues},
	{"kubectl weft", testKubectl},
	{"upgrade", testUpgrade},
	{"all agents at once", testAgentsAtOnce},
	{"force-deleted pods", testForceDeleted},
	{"killed containerd", testKilledContainerd},
	{"killed kubelet", testKilledKubelet},
	{"forgotten sandboxes", testForgotten},
	{"outage of the API server", testOutage},
	{"node replacement", testReplacement},
	{"reboot", testReboot},
	{"static pods", testStatic},
	{"permissions", testPermissions}, // of all that the others did
	{"uninstall", testUninstall},
}

// otherTogether and otherAlone are of what works in another way where packets
// between the nodes go through VXLAN, and services and host ports are iptables'.
var (
	otherTogether = []test{
		{"traffic between pods", testPodTraffic},
		{"services", testServices},
		{"names", testNames},
		{"addresses on request", testFixed},
		{"pools on request", testPools},
		{"sticky addresses", testSticky},
		{"sticky addresses of nobody", testAway},
		{"host ports", testHostPorts},
		{"host port of a flow", testHostPortFlow},
		{"address of nobody", testNobody},
	}
	otherAlone = []test{
		{"upgrade", testUpgrade},
		{"reboot", testReboot},
		{"uninstall", testUninstall},
	}
)

func TestCluster(t *testing.T) {
	s := start(t, cluster.Options{
		Family:      "dual",
		AuditPolicy: absolute(t, "testdata/audit.yaml"),
		Taints:      []corev1.Taint{{Key: convert.NotReadyTaint, Effect: corev1.TaintEffectNoSchedule}},
	})
	s.traces = collect(t, s.Nodes[0])
	s.way = &byHelm{values: map[string]any{
		"pool": map[string]any{"spec": map[string]any{
			"ipv4":     map[string]any{"cidr": pool4, "blockSize": 26},
			"ipv6":     map[string]any{"cidr": pool6, "blockSize": 64},
			"reserved": []string{reserved4, reserved6},
		}},
		"config": map[string]any{
			"tracing": map[string]any{"endpoint": s.traces.endpoint},
			"gc":      map[string]any{"interval": "5s"}, // tests are in a hurry
		},
	}}
	s.run(t, testInstall, together, alone)
}

// TestIptables is the same cluster with kube-proxy's other mode, with VXLAN
// between the nodes, and with Weft installed by kubectl alone.
func TestIptables(t *testing.T) {
	s := start(t, cluster.Options{Family: "dual", Proxy: "iptables"})
	s.way = &byManifest{}
	s.run(t, testInstallFile, otherTogether, otherAlone)
}

// run installs Weft and runs the tests.
func (s *suite) run(t *testing.T, install func(*testing.T, *suite), together, alone []test) {
	if !t.Run("install", func(t *testing.T) { install(t, s) }) {
		return
	}
	s.all = int32(len(together) + len(alone))
	t.Run("together", func(t *testing.T) {
		for _, e := range together {
			t.Run(e.name, func(t *testing.T) {
				t.Parallel()
				s.ran.Add(1)
				e.run(t, s)
			})
		}
	})
	for _, e := range alone {
		t.Run(e.name, func(t *testing.T) {
			s.ran.Add(1)
			t.Cleanup(func() { s.keepEvidence(t) })
			e.run(t, s)
		})
	}
}

// start starts a cluster that ends with the test.
func start(t *testing.T, o cluster.Options) *suite {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a Kubernetes cluster")
	}
	made := build(t)
	dir, err := os.MkdirTemp("", "weft-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	o.Dir, o.Images, o.Log = dir, made.images, t.Logf
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	c, err := cluster.Up(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &suite{Cluster: c, made: made}
	t.Cleanup(func() {
		s.keepEvidence(t)
		if err := errors.Join(c.Down(), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	if s.objects, err = dynamic.NewForConfig(c.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	return s
}

// await waits until check returns nil; the test ends if it does not.
func await(t *testing.T, limit time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	if err := awaitErr(t.Context(), limit, what, check); err != nil {
		t.Fatal(err)
	}
}

func awaitErr(ctx context.Context, limit time.Duration, what string, check func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if err == nil || last == nil || ctx.Err() == nil { // what the end of the time broke off says little
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s, %s at most: %w", what, limit, errors.Join(err, last))
	}
	return nil
}

// holdsFor fails the test if check fails once within that time.
func holdsFor(t *testing.T, limit time.Duration, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := check(t.Context()); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// nodeNamed is the Node object.
func (s *suite) nodeNamed(ctx context.Context, name string) (*corev1.Node, error) {
	return s.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}
