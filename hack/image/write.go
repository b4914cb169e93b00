// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// write puts the index into an OCI image layout and that into a tar file, which
// appears by rename. The annotations are where containerd and others look for
// the image's name.
func (i image) write(index v1.ImageIndex, out string) error {
	dir, err := os.MkdirTemp(filepath.Dir(out), ".image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(filepath.Join(dir, "layout"), empty.Index)
	if err != nil {
		return fmt.Errorf("write image layout: %w", err)
	}
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          i.name,
		"org.opencontainers.image.ref.name": i.name,
	}))
	if err != nil {
		return fmt.Errorf("write image layout: %w", err)
	}
	archive := filepath.Join(dir, "archive")
	if err := i.pack(string(path), archive); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	return os.Rename(archive, out)
}

// pack walks in the order of names, and writes nothing that depends on when or
// by whom it is run.
func (i image) pack(dir, archive string) error {
	f, err := os.OpenFile(archive, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return i.add(w, path, name, e)
	})
	return errors.Join(err, w.Close(), f.Close())
}

func (i image) add(w *tar.Writer, path, name string, e fs.DirEntry) error {
	h := &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755, ModTime: i.created, Format: tar.FormatPAX}
	if e.IsDir() {
		return w.WriteHeader(h)
	}
	st, err := e.Info()
	if err != nil {
		return err
	}
	h.Typeflag, h.Name, h.Mode, h.Size = tar.TypeReg, name, 0o644, st.Size()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
