// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroup is the cluster's, relative to the root of a hierarchy. It is named
// after the directory, so that clusters do not collide.
func (c *Cluster) cgroup() string {
	sum := sha256.Sum256([]byte(c.opts.Dir))
	return "weft-" + hex.EncodeToString(sum[:4])
}

// hierarchies are the directories of the cgroup hierarchies of version 1.
func hierarchies() ([]string, error) {
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil, fmt.Errorf("list cgroup hierarchies: %w", err)
	}
	var dirs []string
	for _, e := range entries {
		dir := filepath.Join(cgroupRoot, e.Name())
		if !e.IsDir() { // a link: cpu -> cpu,cpuacct
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "tasks")); err == nil {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) == 0 {
		return nil, fmt.Errorf("list cgroup hierarchies: expected those of version 1 in %s, found none", cgroupRoot)
	}
	return dirs, nil
}

// makeCgroup makes a cgroup and the one above it, in every hierarchy.
func makeCgroup(rel string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		for _, path := range []string{filepath.Join(dir, filepath.Dir(rel)), filepath.Join(dir, rel)} {
			if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("make cgroup: %w", err)
			}
			if filepath.Base(dir) != "cpuset" {
				continue
			}
			// A new cpuset of version 1 is empty, and no process can be in it.
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				set, err := os.ReadFile(filepath.Join(filepath.Dir(path), file))
				if err == nil {
					err = os.WriteFile(filepath.Join(path, file), set, 0o644)
				}
				if err != nil {
					return fmt.Errorf("fill cpuset %s: %w", path, err)
				}
			}
		}
	}
	return nil
}

// removeCgroups removes a cgroup and those below it from every hierarchy, once
// the processes in them have ended.
func removeCgroups(rel string) error {
	dirs, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeTree(filepath.Join(dir, rel)))
	}
	return errors.Join(errs...)
}

// removeTree removes a cgroup and those below it. The kernel lets go of the last
// process's cgroup a moment after the process.
func removeTree(root string) error {
	var tree []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			tree = append(tree, path)
		}
		return nil // gone meanwhile, or never there
	})
	if err != nil {
		return fmt.Errorf("list cgroups in %s: %w", root, err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(10 * time.Second)
	for _, path := range slices.Backward(tree) {
		for {
			err := os.Remove(path)
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("remove cgroup: %w", err)
			}
			<-tick.C
		}
	}
	return nil
}
