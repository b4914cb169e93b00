// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is what is the same for all architectures.
type image struct {
	name, version, revision string
	created                 time.Time
}

// binaries are in the image under these names, a layer each: a release that
// leaves the plugin as it was shares its layer with the one before.
var binaries = []string{"weft-cni", "weft"}

func (i image) index(bin string, architectures []string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, architecture := range architectures {
		img, err := i.build(filepath.Join(bin, architecture), architecture)
		if err != nil {
			return nil, fmt.Errorf("image for %s: %w", architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return mutate.Annotations(index, i.labels()).(v1.ImageIndex), nil
}

func (i image) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":       "weft",
		"org.opencontainers.image.description": "Pod networking for Kubernetes",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.version":     i.version,
		"org.opencontainers.image.created":     i.created.Format(time.RFC3339),
	}
	if i.revision != "" {
		labels["org.opencontainers.image.revision"] = i.revision
	}
	return labels
}

func (i image) build(dir, architecture string) (v1.Image, error) {
	img := mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1)
	img, err := mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: architecture, Created: v1.Time{Time: i.created},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/weft"}, Cmd: []string{"--help"}, Labels: i.labels(),
			// Capabilities of another user are lost at exec, and the files that
			// are written belong to root; what it may do is for the pod to say.
			User: "0:0", Env: []string{"PATH=/"}, WorkingDir: "/",
		},
	})
	if err != nil {
		return nil, err
	}
	var adds []mutate.Addendum
	base, err := i.layer(i.skeleton)
	if err != nil {
		return nil, err
	}
	adds = append(adds, i.addendum(base, "directories"))
	for _, name := range binaries {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("read binary: %w; build it first: make build", err)
		}
		layer, err := i.layer(func(w *tar.Writer) error { return i.executable(w, name, content) })
		if err != nil {
			return nil, err
		}
		adds = append(adds, i.addendum(layer, name))
	}
	return mutate.Append(img, adds...)
}

func (i image) addendum(layer v1.Layer, what string) mutate.Addendum {
	return mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: i.created}, CreatedBy: what}}
}

// skeleton has /run where runtimes that say /var/run find it: the paths of
// sandboxes must lead to the same place as on the node.
func (i image) skeleton(w *tar.Writer) error {
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "run/", Mode: 0o755},
		{Typeflag: tar.TypeDir, Name: "var/", Mode: 0o755},
		{Typeflag: tar.TypeSymlink, Name: "var/run", Linkname: "/run", Mode: 0o777},
	} {
		h.ModTime, h.Format = i.created, tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
	}
	return nil
}

func (i image) executable(w *tar.Writer, name string, content []byte) error {
	h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(content)), ModTime: i.created, Format: tar.FormatPAX}
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

// layer makes a layer of the files that fill writes.
func (image) layer(fill func(w *tar.Writer) error) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := fill(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
