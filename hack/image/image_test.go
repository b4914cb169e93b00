// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var architectures = []string{"amd64", "arm64"}

// built returns a directory as `make build` leaves it.
func built(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	for _, a := range architectures {
		if err := os.Mkdir(filepath.Join(bin, a), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range binaries {
			if err := os.WriteFile(filepath.Join(bin, a, name), []byte(name+" for "+a), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return bin
}

func made(t *testing.T, bin, created string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	i := image{name: "weft.dev/weft:v1", version: "v1", revision: "abc"}
	err := i.complete(created)
	if err == nil {
		err = run(i, bin, architectures, out)
	}
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(out)); len(left) != 1 {
		t.Errorf("left beside the image: %v", left)
	}
	return raw
}

// unpacked returns the one index of the layout in a tar file, and its name.
func unpacked(t *testing.T, raw []byte) (v1.ImageIndex, string) {
	t.Helper()
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var content []byte
			content, err = io.ReadAll(r)
			err = errors.Join(err, os.WriteFile(path, content, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := top.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("index.json: %v, %+v; want one index", err, m)
	}
	if m.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != m.Manifests[0].Annotations["io.containerd.image.name"] {
		t.Errorf("annotations %v", m.Manifests[0].Annotations)
	}
	index, err := top.ImageIndex(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index, m.Manifests[0].Annotations["io.containerd.image.name"]
}

func TestImage(t *testing.T) {
	index, name := unpacked(t, made(t, built(t), "1700000000"))
	if name != "weft.dev/weft:v1" {
		t.Errorf("name %q", name)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, d := range m.Manifests {
		platforms = append(platforms, d.Platform.String())
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != d.Platform.Architecture || !cmp.Equal(config.Config.Entrypoint, []string{"/weft"}) ||
			config.Config.Labels["org.opencontainers.image.version"] != "v1" || config.Created.Unix() != 1700000000 {
			t.Errorf("config of %s: %+v", d.Platform, config)
		}
		want := map[string]string{
			"etc": "", "run": "", "var": "", "var/run": "-> /run",
			"weft-cni": "weft-cni for " + d.Platform.Architecture, "weft": "weft for " + d.Platform.Architecture,
		}
		if diff := cmp.Diff(want, files(t, img)); diff != "" {
			t.Errorf("files for %s (-want +got):\n%s", d.Platform, diff)
		}
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("platforms (-want +got):\n%s", diff)
	}
}

func files(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	content := mutate.Extract(img)
	defer content.Close()
	found := map[string]string{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = string(raw)
		if h.Typeflag == tar.TypeSymlink {
			found[h.Name] = "-> " + h.Linkname
		}
		if h.Typeflag == tar.TypeReg && h.Mode != 0o755 || h.Uid != 0 || h.ModTime.Unix() != 1700000000 {
			t.Errorf("%s: mode %o, owner %d, time %s", h.Name, h.Mode, h.Uid, h.ModTime)
		}
	}
}

func TestImageIsReproducible(t *testing.T) {
	bin := built(t)
	first := made(t, bin, "1700000000")
	if !bytes.Equal(first, made(t, bin, "1700000000")) {
		t.Error("the same input made two different files")
	}
	if bytes.Equal(first, made(t, bin, "1700000001")) {
		t.Error("another time made the same file; the test proves nothing")
	}
}

func TestImageRefuses(t *testing.T) {
	bin, out := built(t), filepath.Join(t.TempDir(), "image.tar")
	i := image{name: "weft.dev/weft:v1", revision: "abc"}
	if err := i.complete("yesterday"); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("without a time: %v", err)
	}
	if err := os.Remove(filepath.Join(bin, "arm64/weft")); err != nil {
		t.Fatal(err)
	}
	if err := run(i, bin, architectures, out); err == nil || !strings.Contains(err.Error(), "arm64/weft") {
		t.Errorf("without a binary: %v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("an image was written")
	}
}

// What is not said is that of the checkout.
func TestComplete(t *testing.T) {
	t.Chdir("../..")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	i := image{revision: "abc"}
	if err := i.complete(""); err != nil || i.created.Unix() != 1700000000 || i.revision != "abc" {
		t.Fatalf("%+v, %v", i, err)
	}
	manifest, err := os.ReadFile("deploy/weft.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manifest), "image: "+i.name+"\n") {
		t.Errorf("the image is called %s, which the manifest does not ask for", i.name)
	}
}
