// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/registry/convert"
	"weft.dev/weft/test/cluster"
)

// artifacts are what is made of the source tree, once for all tests.
type artifacts struct {
	root      string // of the source tree
	dir       string
	helm      string
	weft      string   // for operators' commands on a node
	images    []string // archives
	tag, next string   // of Weft's image and of that of the next release
}

const (
	imageWeft = "weft.dev/weft"
	imageLoad = "weft.dev/load:test"
)

// made is the directory of the artifacts, once there is one.
var made string

var built = sync.OnceValues(func() (*artifacts, error) {
	dir, err := os.MkdirTemp("", "weft-e2e-made-")
	if err != nil {
		return nil, err
	}
	made = dir
	a := &artifacts{dir: dir, tag: "e2e", next: "e2e-next"}
	mod, err := command("go", "env", "GOMOD")
	if err != nil {
		return a, err
	}
	a.root = filepath.Dir(strings.TrimSpace(mod))
	helm, err := command(filepath.Join(a.root, "test/components/build.sh"), "helm")
	if err != nil {
		return a, err
	}
	a.helm = filepath.Join(strings.TrimSpace(helm), "helm")
	for _, tag := range []string{a.tag, a.next} {
		if err := a.buildImage(tag); err != nil {
			return a, err
		}
	}
	a.weft = filepath.Join(dir, a.tag, runtime.GOARCH, "weft")
	return a, a.buildLoad()
})

// build makes the artifacts.
func build(t *testing.T) *artifacts {
	t.Helper()
	a, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(made)
	os.Exit(code)
}

// buildImage builds Weft's image as the Makefile does, for this machine only.
// Releases differ in their version at least.
func (a *artifacts) buildImage(tag string) error {
	bin := filepath.Join(a.dir, tag)
	to := filepath.Join(bin, runtime.GOARCH)
	steps := [][]string{
		{"env", "CGO_ENABLED=0", "go", "-C", a.root, "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(to, "weft-cni"), "./cmd/weft-cni"},
		{"env", "CGO_ENABLED=0", "go", "-C", a.root, "build", "-trimpath", "-ldflags=-s -w -X main.version=" + tag, "-o", filepath.Join(to, "weft"), "./cmd/weft"},
		{"go", "-C", a.root, "run", "./hack/image", "-bin", bin, "-architectures", runtime.GOARCH, "-created", "1700000000",
			"-name", imageWeft + ":" + tag, "-version", tag, "-o", bin + ".tar"},
	}
	for _, step := range steps {
		if _, err := command(step...); err != nil {
			return err
		}
	}
	a.images = append(a.images, bin+".tar")
	return nil
}

func (a *artifacts) buildLoad() error {
	program := filepath.Join(a.dir, "load")
	if _, err := command("env", "CGO_ENABLED=0", "go", "-C", a.root, "build", "-trimpath", "-o", program, "./test/e2e/load"); err != nil {
		return err
	}
	a.images = append(a.images, program+".tar")
	return cluster.Image{Name: imageLoad, Files: map[string]string{"/load": program}, Entrypoint: []string{"/load"}}.Write(program + ".tar")
}

// command runs a program to its end and returns its standard output.
func command(argv ...string) (string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("run %s: %w: %s", strings.Join(argv, " "), err, stderr.String())
	}
	return string(out), nil
}

// Ranges of the pool, and what it reserves for pods that ask for it.
const (
	pool4, pool6         = "10.42.0.0/16", "fd00:42::/48"
	reserved4, reserved6 = "10.42.255.0/24", "fd00:42:0:ffff::/64"
)

// chartValues are what a user sets: images that need no registry, and the pool.
func chartValues() map[string]any {
	return map[string]any{
		"pool": map[string]any{"spec": map[string]any{
			"ipv4":     map[string]any{"cidr": pool4, "blockSize": 26},
			"ipv6":     map[string]any{"cidr": pool6, "blockSize": 64},
			"reserved": []string{reserved4, reserved6},
		}},
	}
}

// render renders the chart to a file of manifests.
func (s *suite) render(t *testing.T, tag string, set ...string) string {
	t.Helper()
	values := map[string]any{"image": map[string]any{"repository": imageWeft, "tag": tag, "pullPolicy": "Never"}}
	for k, v := range s.values {
		values[k] = v
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.Dir(), "values.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{s.made.helm, "template", "weft", filepath.Join(s.made.root, "deploy/chart"), "--namespace", "kube-system", "--include-crds", "-f", file}
	for _, one := range set {
		args = append(args, "--set", one)
	}
	manifest, err := command(args...)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(s.Dir(), "weft-"+tag+strings.Join(set, "-")+".yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// install follows docs/install.md.
func (s *suite) install(t *testing.T, tag string) {
	t.Helper()
	s.kubectl(t, "apply", "-f", s.render(t, tag))
	s.kubectl(t, "-n", "kube-system", "rollout", "status", "daemonset/weft", "--timeout=90s")
	s.kubectl(t, "wait", "--for=condition=Ready", "node", "--all", "--timeout=60s")
	s.kubectl(t, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=90s")
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

// weftOn runs an operator's command on a node and decodes its JSON.
func (s *suite) weftOn(ctx context.Context, n *cluster.Node, into any, args ...string) error {
	out, err := n.Exec(ctx, append([]string{s.made.weft}, append(args, "-o", "json")...)...)
	if jsonErr := json.Unmarshal([]byte(out), into); jsonErr != nil { // problems are told as JSON, too
		return fmt.Errorf("weft %s on %s: %w: %.300q", strings.Join(args, " "), n.Name, errors.Join(jsonErr, err), out)
	}
	return nil
}

// A user applies the manifest to a cluster whose nodes wait for a network. The
// nodes become Ready, Weft's taint and the condition NetworkUnavailable go away,
// and the pods that waited (CoreDNS) start.
func testInstall(t *testing.T, s *suite) {
	for _, n := range s.Nodes {
		markUnavailable(t, s, n.Name)
	}
	s.install(t, s.made.tag)
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
		if _, err := n.Exec(t.Context(), s.made.weft, "status"); err != nil {
			t.Error(err)
		}
	}
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
