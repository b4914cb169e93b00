// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"weft.dev/weft/test/cluster"
)

// artifacts are what is made of the source tree, once for all tests.
type artifacts struct {
	root          string // of the source tree
	dir           string
	helm, kubectl string
	images        []string // archives
	// present is what the source tree is, next what a user upgrades to: the same
	// under another version.
	present, next release
}

// release is one version of Weft.
type release struct {
	version string // and the image's tag
	chart   string // directory
	bin     string // directory of weft and weft-cni
}

// weft is the program, for operators' commands on a node.
func (r release) weft() string { return filepath.Join(r.bin, "weft") }

// image is the one that chart and manifests ask for.
func (r release) image() string { return imageWeft + ":" + r.version }

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
	a := &artifacts{dir: dir}
	mod, err := command("go", "env", "GOMOD")
	if err != nil {
		return a, err
	}
	a.root = filepath.Dir(strings.TrimSpace(mod))
	components, err := command(filepath.Join(a.root, "test/components/build.sh"), "helm", "kubernetes")
	if err != nil {
		return a, err
	}
	dirs := strings.Fields(components)
	a.helm, a.kubectl = filepath.Join(dirs[0], "helm"), filepath.Join(dirs[1], "kubectl")
	if err := a.releases(); err != nil {
		return a, err
	}
	for _, r := range []release{a.present, a.next} {
		if err := a.buildImage(r); err != nil {
			return a, err
		}
	}
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

// releases reads the present version from the chart and makes the next one's.
func (a *artifacts) releases() error {
	a.present.chart = filepath.Join(a.root, "deploy/chart")
	file, err := os.ReadFile(filepath.Join(a.present.chart, "Chart.yaml"))
	if err != nil {
		return err
	}
	var chart struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(file, &chart); err != nil {
		return err
	}
	a.present.version, a.next.version = chart.AppVersion, chart.AppVersion+"-next"
	a.next.chart = filepath.Join(a.dir, "chart")
	if err := os.CopyFS(a.next.chart, os.DirFS(a.present.chart)); err != nil {
		return err
	}
	file = bytes.ReplaceAll(file, []byte(chart.Version), []byte(chart.Version+"-next"))
	for _, r := range []*release{&a.present, &a.next} {
		r.bin = filepath.Join(a.dir, r.version, runtime.GOARCH)
	}
	return os.WriteFile(filepath.Join(a.next.chart, "Chart.yaml"), file, 0o644)
}

// buildImage builds Weft's image as the Makefile does, for this machine only.
func (a *artifacts) buildImage(r release) error {
	archive := filepath.Join(a.dir, r.version+".tar")
	steps := [][]string{
		{"env", "CGO_ENABLED=0", "go", "-C", a.root, "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w -X main.version=" + r.version, "-o", filepath.Join(r.bin, "weft-cni"), "./cmd/weft-cni"},
		{"env", "CGO_ENABLED=0", "go", "-C", a.root, "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-s -w -X main.version=" + r.version, "-o", r.weft(), "./cmd/weft"},
		{"go", "-C", a.root, "run", "./hack/image", "-bin", filepath.Dir(r.bin), "-architectures", runtime.GOARCH, "-created", "1700000000",
			"-name", r.image(), "-version", r.version, "-o", archive},
	}
	for _, step := range steps {
		if _, err := command(step...); err != nil {
			return err
		}
	}
	a.images = append(a.images, archive)
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
