// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image is a container image of one layer.
type Image struct {
	Name       string            // with a tag
	Files      map[string]string // path in the image: file on the machine; mode 0755
	Links      map[string]string // path in the image: target of the symbolic link
	Entrypoint []string
}

// Write writes the image as a docker archive, which Node.Import reads.
func (i Image) Write(archive string) error {
	layer, err := i.layer()
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(layer, types.DockerUncompressedLayer))
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: i.Entrypoint, Env: []string{"PATH=" + searchPath}, WorkingDir: "/"}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	tag, err := name.NewTag(i.Name)
	if err != nil {
		return fmt.Errorf("make image %s: %w", i.Name, err)
	}
	// Written beside its name: a file with that name is whole.
	beside := fmt.Sprintf("%s.%d.new", archive, os.Getpid())
	if err := tarball.WriteToFile(beside, tag, image); err != nil {
		return fmt.Errorf("write image %s: %w", i.Name, err)
	}
	if err := os.Rename(beside, archive); err != nil {
		return fmt.Errorf("write image %s: %w", i.Name, err)
	}
	return nil
}

// layer is the files and links as a tar archive.
func (i Image) layer() ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	dirs := map[string]bool{}
	for _, dir := range []string{"tmp", "etc", "proc", "sys", "dev"} {
		if err := addDir(w, dirs, dir); err != nil {
			return nil, err
		}
	}
	for to, from := range i.Files {
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := addDir(w, dirs, path.Dir(rel(to))); err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: rel(to), Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	for at, target := range i.Links {
		if err := addDir(w, dirs, path.Dir(rel(at))); err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: rel(at), Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}

func rel(p string) string { return strings.TrimPrefix(p, "/") }

// addDir adds a directory and those above it, each once.
func addDir(w *tar.Writer, done map[string]bool, dir string) error {
	if dir == "." || done[dir] {
		return nil
	}
	if err := addDir(w, done, path.Dir(dir)); err != nil {
		return err
	}
	done[dir] = true
	mode := int64(0o755)
	if dir == "tmp" {
		mode = 0o1777
	}
	return w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: mode})
}

// stock are the images that every node has, by the name of their archive.
func (c *Cluster) stock() map[string]Image {
	return map[string]Image{
		"pause":   {Name: ImagePause, Files: map[string]string{"/pause": c.bins["pause"]}, Entrypoint: []string{"/pause"}},
		"agnhost": {Name: ImageAgnhost, Files: map[string]string{"/agnhost": c.bins["agnhost"]}, Entrypoint: []string{"/agnhost"}},
		"coredns": {Name: ImageCoreDNS, Files: map[string]string{"/coredns": c.bins["coredns"]}, Entrypoint: []string{"/coredns"}},
	}
}

// toolbox is busybox with a link for each of its applets, and iperf3.
func (c *Cluster) toolbox() (Image, error) {
	image := Image{
		Name:       ImageToolbox,
		Files:      map[string]string{"/bin/busybox": c.bins["busybox"], "/bin/iperf3": c.bins["iperf3"]},
		Links:      map[string]string{},
		Entrypoint: []string{"/bin/sh"},
	}
	list, err := run(context.Background(), nil, c.bins["busybox"], "--list")
	if err != nil {
		return Image{}, err
	}
	for applet := range strings.FieldsSeq(list) {
		if applet != "busybox" {
			image.Links["/bin/"+applet] = "busybox"
		}
	}
	libraries, err := run(context.Background(), nil, "ldd", c.bins["iperf3"])
	if err != nil {
		return Image{}, err
	}
	for word := range strings.FieldsSeq(libraries) {
		if strings.HasPrefix(word, "/") {
			image.Files[word] = word
		}
	}
	return image, nil
}

// makeImages writes the archives into the directory of the cluster. The large
// ones are kept beside the programs that they hold.
func (c *Cluster) makeImages() error {
	if err := os.MkdirAll(filepath.Dir(c.archive("")), 0o755); err != nil {
		return fmt.Errorf("make directory for images: %w", err)
	}
	images := c.stock()
	var err error
	if images["toolbox"], err = c.toolbox(); err != nil {
		return err
	}
	for file, image := range images {
		archive := c.archive(file)
		kept := ""
		if file == "agnhost" || file == "coredns" { // large; their directory has the version
			kept = c.bins[file] + ".image.tar"
		}
		if kept == "" {
			if err := image.Write(archive); err != nil {
				return err
			}
			continue
		}
		if _, err := os.Stat(kept); errors.Is(err, fs.ErrNotExist) {
			if err := image.Write(kept); err != nil {
				return err
			}
		}
		if err := os.Symlink(kept, archive); err != nil {
			return fmt.Errorf("place image %s: %w", image.Name, err)
		}
	}
	return nil
}

func (c *Cluster) archive(file string) string {
	return filepath.Join(c.opts.Dir, "images", file+".tar")
}

// archives are those that a node imports, the sandbox image first.
func (c *Cluster) archives() []string {
	var all []string
	for _, file := range []string{"pause", "coredns", "agnhost", "toolbox"} {
		all = append(all, c.archive(file))
	}
	return append(all, c.opts.Images...)
}
