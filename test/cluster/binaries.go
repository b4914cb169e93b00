// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// binaries are the paths of programs by name.
type binaries map[string]string

// components are the modules in test/components and the programs of each.
var components = []struct {
	name     string
	programs []string
}{
	{"etcd", []string{"etcd"}},
	{"kubernetes", []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "agnhost"}},
	{"containerd", []string{"containerd", "containerd-shim-runc-v2", "ctr"}},
	{"runc", []string{"runc"}},
	{"coredns", []string{"coredns"}},
}

// buildBinaries builds what is not in the cache yet, and the package's own
// programs, small ones, into dir.
func buildBinaries(ctx context.Context, dir string) (binaries, error) {
	mod, err := run(ctx, nil, "go", "env", "GOMOD")
	if err != nil {
		return nil, fmt.Errorf("find the source tree: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(mod))
	args := []string{filepath.Join(root, "test/components/build.sh")}
	for _, c := range components {
		args = append(args, c.name)
	}
	var built, plugins string
	err = together(
		func() (err error) {
			built, err = run(ctx, nil, args...)
			return err
		},
		func() (err error) {
			plugins, err = run(ctx, nil, filepath.Join(root, "test/refplugins/build.sh"))
			return err
		},
		func() error {
			_, err := run(ctx, nil, "env", "CGO_ENABLED=0", "go", "-C", root, "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "./test/cluster/pause", "./test/cluster/forward")
			return err
		},
	)
	if err != nil {
		return nil, fmt.Errorf("build the cluster's programs: %w", err)
	}
	bins := binaries{
		"pause":    filepath.Join(dir, "pause"),
		"forward":  filepath.Join(dir, "forward"),
		"loopback": filepath.Join(strings.TrimSpace(plugins), "loopback"),
		"busybox":  "/bin/busybox",
		"iperf3":   "/usr/bin/iperf3",
	}
	dirs := strings.Fields(built)
	if len(dirs) != len(components) {
		return nil, fmt.Errorf("build the cluster's programs: expected %d directories, found %q", len(components), dirs)
	}
	for i, c := range components {
		for _, p := range c.programs {
			bins[p] = filepath.Join(dirs[i], p)
		}
	}
	for name, path := range bins {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("find %s (busybox, iperf3: install the packages busybox-static, iperf3; others: remove the directory and repeat): %w", name, err)
		}
	}
	return bins, nil
}
