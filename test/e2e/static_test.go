// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// A pod whose manifest lies on the node runs before the API server knows of it,
// and under another UID there. It has a network like any other, and its addresses
// come back when the manifest goes.
func testStatic(t *testing.T, s *suite) {
	ns := s.namespace(t)
	client := s.start(t, server(ns, "client", "node1"))[0]
	n := s.Nodes[1]
	const dir = "/var/lib/kubelet/manifests"
	if err := os.MkdirAll(n.Root+dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config, err := os.OpenFile(filepath.Join(n.Dir, "kubelet.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = config.WriteString("\nstaticPodPath: " + dir + "\nfileCheckFrequency: 1s\n")
	if err := errors.Join(err, config.Close(), n.Kill("kubelet"), n.Start("kubelet")); err != nil {
		t.Fatal(err)
	}
	pod := server(ns, "static", "")
	pod.APIVersion, pod.Kind = "v1", "Pod"
	text, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(n.Root+dir, "static.yaml")
	if err := os.WriteFile(manifest, text, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(manifest) })
	running := s.ready(t, ns, "static-"+n.Name, "")
	for f, address := range addressesOf(running) {
		if err := s.seesSource(t.Context(), client, address, addressesOf(client)[f]); err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	s.freed(t, 60*time.Second, n, running)
}
