// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/test/apiserver"
)

// The kubelet of one node takes connections and never answers, that of another
// one takes none: a node that hangs is waited for as long as was said, and not
// for as long as the API server would.
func TestNodesThatDoNotAnswer(t *testing.T) {
	s := apiserver.Start(t)
	hangs, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hangs.Close()
	refuses, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refuses.Close()
	s.MustKubectl("", "create", "serviceaccount", "default") // what a controller does elsewhere
	for name, kubelet := range map[string]net.Listener{"hangs": hangs, "refuses": refuses} {
		s.Apply(fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}}\n---\n{apiVersion: v1, kind: Pod, "+
			"metadata: {name: weft-%[1]s, namespace: default, labels: {app.kubernetes.io/name: weft, app.kubernetes.io/component: agent}}, "+
			"spec: {nodeName: %[1]s, containers: [{name: agent, image: none}]}}\n", name))
		port := kubelet.Addr().(*net.TCPAddr).Port
		s.MustKubectl("", "patch", "node", name, "--subresource=status", "-p", fmt.Sprintf(`{"status": {
			"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": %d}}}}`, port))
		s.MustKubectl("", "patch", "pod", "weft-"+name, "--subresource=status", "-p", `{"status": {"phase": "Running"}}`)
	}
	target := Target{Kubeconfig: s.Kubeconfig("admin"), Namespace: "default", Timeout: 2 * time.Second}
	start := time.Now()
	var stderr strings.Builder
	err = Run(t.Context(), target, []string{"status"}, io.Discard, &stderr)
	if took := time.Since(start); err == nil || took < target.Timeout || took > 5*target.Timeout {
		t.Errorf("after %s: %v", took, err)
	}
	for _, want := range []string{"node hangs: no complete answer within 2s", "node refuses: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if want := "==> hangs\n==> refuses\n"; stderr.String() != want {
		t.Errorf("standard error is %q, want %q", stderr.String(), want)
	}
	target.Node = "other"
	if err := Run(context.Background(), target, []string{"status"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "no agent runs on node other") {
		t.Errorf("of a node without an agent: %v", err)
	}
}

func TestNoCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte("]["), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), Target{Kubeconfig: path}, []string{"status"}, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("%v, want the name of the file", err)
	}
}
