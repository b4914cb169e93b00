// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// way is one of those in which docs/install.md has users install Weft. Each
// method does what the documentation says, and waits for nothing.
type way interface {
	install(t *testing.T, s *suite)
	upgrade(t *testing.T, s *suite) // to the next release
	retire(t *testing.T, s *suite)  // the agents, for the uninstaller
	remove(t *testing.T, s *suite)  // the cluster's objects
}

// byHelm is a way.
type byHelm struct {
	values map[string]any
	chart  string // that is installed
}

func (w *byHelm) install(t *testing.T, s *suite) {
	t.Helper()
	text, err := yaml.Marshal(w.values)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.Dir(), "values.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	w.chart = s.made.present.chart
	s.helm(t, "install", "weft", w.chart, "-f", file)
}

func (w *byHelm) upgrade(t *testing.T, s *suite) {
	t.Helper()
	w.chart = s.made.next.chart
	s.kubectl(t, "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(w.chart, "crds"))
	s.helm(t, "upgrade", "weft", w.chart, "--reset-then-reuse-values")
}

func (w *byHelm) retire(t *testing.T, s *suite) {
	t.Helper()
	s.helm(t, "upgrade", "weft", w.chart, "--reset-then-reuse-values", "--set", "uninstall.enabled=true")
}

func (w *byHelm) remove(t *testing.T, s *suite) {
	t.Helper()
	s.helm(t, "uninstall", "weft")
	s.kubectl(t, "delete", "crd", "subnetleases.weft.dev", "addressclaims.weft.dev", "ippools.weft.dev", "--timeout=60s")
}

// helm runs helm; the test ends if it fails.
func (s *suite) helm(t *testing.T, args ...string) {
	t.Helper()
	if says, err := s.tryHelm(args...); err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, says)
	}
}

// tryHelm returns what helm says on standard error.
func (s *suite) tryHelm(args ...string) (says string, err error) {
	cmd := exec.Command(s.made.helm, append([]string{"--kubeconfig", s.Kubeconfig(), "--namespace", "kube-system"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	err = cmd.Run()
	return stderr.String(), err
}

// byManifest is a way.
type byManifest struct {
	file string // that is applied
}

func (w *byManifest) install(t *testing.T, s *suite) {
	t.Helper()
	w.file = filepath.Join(s.made.root, "deploy/weft.yaml")
	s.kubectl(t, "apply", "-f", w.file)
}

func (w *byManifest) upgrade(t *testing.T, s *suite) {
	t.Helper()
	w.edit(t, s, s.made.present.image(), s.made.next.image())
}

func (w *byManifest) retire(t *testing.T, s *suite) {
	t.Helper()
	s.kubectl(t, "-n", "kube-system", "delete", "daemonset", "weft", "--timeout=60s")
	s.kubectl(t, "apply", "-f", filepath.Join(s.made.root, "deploy/weft-uninstall.yaml"))
}

func (w *byManifest) remove(t *testing.T, s *suite) {
	t.Helper()
	s.kubectl(t, "delete", "--ignore-not-found", "-f", filepath.Join(s.made.root, "deploy/weft-uninstall.yaml"), "-f", w.file, "--timeout=60s")
}

// edit applies the file with a text replaced.
func (w *byManifest) edit(t *testing.T, s *suite, old, changed string) {
	t.Helper()
	text, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %q", w.file, old)
	}
	w.file = filepath.Join(s.Dir(), "weft.yaml")
	if err := os.WriteFile(w.file, []byte(strings.ReplaceAll(string(text), old, changed)), 0o644); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "apply", "-f", w.file)
}

// install installs Weft in the suite's way, and waits as docs/install.md says.
func (s *suite) install(t *testing.T) {
	t.Helper()
	s.way.install(t, s)
	s.rolledOut(t, "daemonset/weft")
	s.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
	s.rolledOut(t, "deployment/coredns")
}

// rolledOut waits until an object of kube-system has its pods.
func (s *suite) rolledOut(t *testing.T, object string) {
	t.Helper()
	s.kubectl(t, "-n", "kube-system", "rollout", "status", object, "--timeout=180s")
}

// kubectl runs kubectl; the test ends if it fails.
func (s *suite) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}
