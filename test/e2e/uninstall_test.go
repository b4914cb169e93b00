// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"weft.dev/weft/test/cluster"
)

// Weft is removed in the order of docs/install.md. Pods that were running can
// terminate, and afterwards there is nothing of Weft on any node: no link, route
// or nftables table, no file.
func testUninstall(t *testing.T, s *suite) {
	ns := s.namespace(t)
	pods := s.start(t, server(ns, "a", "node1"), withPort(server(ns, "b", "node2", "kubernetes.io/egress-bandwidth", "8M"), 18099))
	s.way.retire(t, s)
	s.agentsGone(t)
	holdsFor(t, 5*time.Second, "running pods", func(ctx context.Context) error {
		return s.seesSource(ctx, pods[0], addressesOf(pods[1])[0], addressesOf(pods[0])[0])
	})
	for _, p := range pods {
		s.remove(t, ns, p.Name)
	}
	s.kubectl(t, "-n", "kube-system", "scale", "deployment/coredns", "--replicas=0")
	s.drain(t)
	s.rolledOut(t, "daemonset/weft-uninstall")
	for _, n := range s.Nodes {
		nothingLeft(t, n)
	}
	s.way.remove(t, s)
	crds, err := s.Kubectl(t.Context(), "get", "crd", "-o", "name")
	if err != nil || strings.Contains(crds, "weft.dev") {
		t.Errorf("definitions after the removal: %v\n%s", err, crds)
	}
}

// agentsGone waits until no agent runs.
func (s *suite) agentsGone(t *testing.T) {
	t.Helper()
	await(t, 30*time.Second, "the agents to go", func(ctx context.Context) error {
		agents, err := s.agentPods(ctx)
		if err == nil && len(agents) > 0 {
			err = fmt.Errorf("%d are there", len(agents))
		}
		return err
	})
}

// drain deletes every pod that has a network of its own.
func (s *suite) drain(t *testing.T) {
	t.Helper()
	for _, n := range s.Nodes {
		await(t, starting, "the pods of "+n.Name+" to go", func(ctx context.Context) error {
			pods, err := s.podsOn(ctx, n.Name)
			if err != nil {
				return err
			}
			var errs []error
			for key, p := range pods {
				errs = append(errs, errors.New(key+" is there"))
				if p.DeletionTimestamp == nil {
					errs = append(errs, s.Client().CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}))
				}
			}
			return errors.Join(errs...)
		})
	}
}

// nothingLeft looks for what Weft made on a node.
func nothingLeft(t *testing.T, n *cluster.Node) {
	t.Helper()
	for what, script := range map[string]string{
		"links":      "ip -o link show | grep weft || true",
		"routes":     "ip route show table all proto 119; ip -6 route show table all proto 119",
		"nftables":   "nft list tables | grep weft || true",
		"forwarding": "bridge fdb show | grep weft || true",
		"qdiscs":     "tc qdisc show | grep -e tbf -e ingress -e clsact || true",
		"files":      "ls -d /run/weft* /opt/cni/bin/weft* /etc/cni/net.d/*weft* 2>/dev/null || true",
	} {
		out, err := n.Exec(t.Context(), "sh", "-c", script)
		if err != nil || strings.TrimSpace(out) != "" {
			t.Errorf("%s on %s after the removal: %v\n%s", what, n.Name, err, out)
		}
	}
	for _, path := range []string{filepath.Join(n.RunDir, "weft"), filepath.Join(n.BinDir, "weft-cni"), filepath.Join(n.BinDir, "weft-ipam"), filepath.Join(n.ConfDir, "10-weft.conflist")} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after the removal %s: %s", path, fmt.Sprint(err))
		}
	}
}
