// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/internal/registry/convert"
	"weft.dev/weft/internal/report"
	"weft.dev/weft/test/cluster"
)

// Ranges of the pool, and what it reserves for pods that ask for it.
const (
	pool4, pool6         = "10.42.0.0/16", "fd00:42::/48"
	reserved4, reserved6 = "10.42.255.0/24", "fd00:42:0:ffff::/64"
)

// A user installs Weft on a cluster whose nodes wait for a network. The nodes
// become Ready, Weft's taint and the condition NetworkUnavailable go away, and the
// pods that waited (CoreDNS) start.
func testInstall(t *testing.T, s *suite) {
	for _, n := range s.Nodes {
		markUnavailable(t, s, n.Name)
	}
	s.install(t)
	for _, n := range s.Nodes {
		await(t, 20*time.Second, "the marks of "+n.Name+" to go", func(ctx context.Context) error {
			node, err := s.nodeNamed(ctx, n.Name)
			if err != nil {
				return err
			}
			for _, taint := range node.Spec.Taints {
				if taint.Key == convert.NotReadyTaint || taint.Key == corev1.TaintNodeNetworkUnavailable {
					return fmt.Errorf("taint %s is there", taint.Key)
				}
			}
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeNetworkUnavailable && (c.Status != corev1.ConditionFalse || c.Reason != "WeftReady") {
					return fmt.Errorf("condition NetworkUnavailable is %s, %s", c.Status, c.Reason)
				}
			}
			return nil
		})
		if _, err := n.Exec(t.Context(), s.made.present.weft(), "status"); err != nil {
			t.Error(err)
		}
	}
}

// weftOn runs an operator's command on a node and decodes its JSON.
func (s *suite) weftOn(ctx context.Context, n *cluster.Node, into any, args ...string) error {
	out, err := n.Exec(ctx, append([]string{s.made.present.weft()}, append(args, "-o", "json")...)...)
	if jsonErr := json.Unmarshal([]byte(out), into); jsonErr != nil { // problems are told as JSON, too
		return fmt.Errorf("weft %s on %s: %w: %.300q", strings.Join(args, " "), n.Name, errors.Join(jsonErr, err), out)
	}
	return nil
}

// markUnavailable does what controllers of clouds do with a new node.
func markUnavailable(t *testing.T, s *suite, node string) {
	t.Helper()
	n, err := s.nodeNamed(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated", LastTransitionTime: metav1.Now(),
	})
	if _, err := s.Client().CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A user installs Weft from a file, as it is, and then wants more: IPv6, and
// addresses that are reserved, so he changes the IPPool; VXLAN between all nodes,
// so he changes the file, and restarts the agents because he does not want to wait
// until the kubelets bring them their new configuration. All that are made then
// have what he wants.
func testInstallFile(t *testing.T, s *suite) {
	s.install(t)
	s.kubectl(t, "patch", "ippool", "default", "--type=merge", "--patch",
		fmt.Sprintf(`{"spec": {"ipv6": {"cidr": %q, "blockSize": 64}, "reserved": [%q, %q]}}`, pool6, reserved4, reserved6))
	file, ok := s.way.(*byManifest)
	if !ok {
		t.Fatal("Weft was not installed from a file")
	}
	file.edit(t, s, "type: auto", "type: vxlan")
	s.kubectl(t, "-n", "kube-system", "rollout", "restart", "daemonset/weft")
	s.rolledOut(t, "daemonset/weft")
	for _, n := range s.Nodes {
		await(t, 20*time.Second, "VXLAN on "+n.Name, func(ctx context.Context) error {
			var nodes []report.Node
			if err := s.weftOn(ctx, n, &nodes, "node", "list"); err != nil {
				return err
			}
			for _, other := range nodes {
				if other.Name != n.Name && (other.Way != "vxlan" || len(other.Subnets) != 2) {
					return fmt.Errorf("pods of %s are reached by %s at %v", other.Name, other.Way, other.Subnets)
				}
			}
			return s.settled(ctx, n)
		})
	}
	s.kubectl(t, "-n", "kube-system", "rollout", "restart", "deployment/coredns") // whose pods have IPv4 only
	s.rolledOut(t, "deployment/coredns")
}

// Whoever misspells a value of the chart, or gives one of the wrong kind, is told
// which by helm, and nothing changes.
func testWrongValues(t *testing.T, s *suite) {
	before := s.agents(t)
	chart := s.made.present.chart
	for set, says := range map[string]string{
		"config.netwrok.mtu=1400":                "at '/config': additional properties 'netwrok' not allowed",
		"config.nodeName=node2":                  "config.nodeName cannot be set: it would give all nodes one name",
		"config.network.backend.type=vxlna":      "at '/config/network/backend/type'",
		"config.network.mtu=large":               "at '/config/network/mtu'",
		"config.cluster.kubernetes.sever=https:": "at '/config/cluster/kubernetes': additional properties 'sever' not allowed",
		"pool.spec.ipv4.blockSize=big":           "at '/pool/spec/ipv4/blockSize'",
		"pool.spec.ipv5.cidr=10.42.0.0/16":       "at '/pool/spec': additional properties 'ipv5' not allowed",
		"pool.spec.reserved=10.42.0.0/28":        "at '/pool/spec/reserved'",
	} {
		said, err := s.tryHelm("upgrade", "weft", chart, "--reset-then-reuse-values", "--set", set)
		if err == nil || !strings.Contains(said, says) {
			t.Errorf("helm upgrade --set %s: %v\n%s\nwant a refusal with %q", set, err, said, says)
		}
	}
	if after := s.agents(t); !maps.Equal(before, after) {
		t.Errorf("the agents are %v, were %v", after, before)
	}
}
