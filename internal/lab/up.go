// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ExistsError says that Up found a directory of that name.
type ExistsError struct {
	Name     string
	Complete bool // false: a lab that was left half made, or is being made now
}

func (e *ExistsError) Error() string {
	what := "exists already"
	if !e.Complete {
		what = "is half made, or being made right now"
	}
	return fmt.Sprintf("lab %q %s; `weft lab down --name %s` removes it, `--name` with another name makes one beside it",
		e.Name, what, e.Name)
}

// Up makes a lab and returns when its network is ready for pods. Where it does
// not get that far it removes what it made. An existing directory of that name
// is an ExistsError and is not touched.
func (h Host) Up(ctx context.Context, s Spec) error {
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return err
	}
	if err := h.findPrograms(s); err != nil {
		return err
	}
	if err := enoughWatches(s); err != nil {
		return err
	}
	dir := h.layout(s.Name)
	if err := h.makeDir(dir); err != nil {
		if errors.Is(err, os.ErrExist) {
			_, missing := os.Stat(dir.ready())
			return &ExistsError{Name: s.Name, Complete: missing == nil}
		}
		return err
	}
	lock, err := h.lock(s.Name, changing)
	if err != nil {
		return err
	}
	l := &lab{Host: h, l: dir, spec: s, topo: NewTopology(s.Family, s.Nodes, s.Segments), lock: lock}
	defer l.close()
	if err := l.claim(); err != nil {
		return err
	}
	if err := l.build(ctx); err != nil {
		return errors.Join(fmt.Errorf("make lab %q: %w", s.Name, err), l.remove(context.WithoutCancel(ctx)))
	}
	return nil
}

// makeDir makes the lab's directory. The root may be removed by the Down of
// another lab between our making it and using it; then once more.
func (h Host) makeDir(dir layout) error {
	for {
		if err := os.MkdirAll(h.Root, 0o755); err != nil {
			return fmt.Errorf("make lab directory: %w", err)
		}
		err := os.Mkdir(string(dir), 0o755)
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
}

// claim makes sure that the locked directory is still ours to fill: between our
// making and locking it a Down may have removed it and another Up made it anew.
func (l *lab) claim() error {
	entries, err := os.ReadDir(string(l.l))
	if err == nil && len(entries) > 0 {
		_, missing := os.Stat(l.l.ready())
		return &ExistsError{Name: l.spec.Name, Complete: missing == nil}
	}
	return err
}

// findPrograms says before anything is made which program is missing.
func (h Host) findPrograms(s Spec) error {
	var need []string
	if s.agents() {
		need = append(need, "weft")
	}
	if s.Conflist == "" {
		need = append(need, "weft-cni")
		if s.Mode == Thin {
			need = append(need, "weft-ipam")
		}
	}
	var missing []string
	for _, program := range need {
		if _, err := os.Stat(filepath.Join(h.BinDir, program)); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("find %s in %s, where the running program is: not there; run `make build`",
			strings.Join(missing, " and "), h.BinDir)
	}
	return nil
}

// watchesPerAgent is how many inotify instances an agent keeps, for the
// registry.
const watchesPerAgent = 1

// enoughWatches says before anything is made that the kernel would refuse the
// agents their inotify instances, of which a user has 128 by default. The limit
// is the machine's, so a lab does not raise it.
func enoughWatches(s Spec) error {
	const path = "/proc/sys/fs/inotify/max_user_instances"
	text, err := os.ReadFile(path)
	if err != nil || !s.agents() {
		return nil // a kernel that does not tell its limit may have none
	}
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if need := s.Nodes * watchesPerAgent; err == nil && need > limit {
		return fmt.Errorf("nodes %d: their agents need %d inotify instances, the kernel gives a user %d; `sysctl -w fs.inotify.max_user_instances=%d` raises that",
			s.Nodes, need, limit, max(1024, 2*need))
	}
	return nil
}

func (l *lab) build(ctx context.Context) error {
	if err := l.makeDirs(); err != nil {
		return err
	}
	if l.spec.agents() {
		pool, err := poolYAML(l.spec.Subnets)
		if err != nil {
			return err
		}
		if err := writeFile(l.l.pool(), pool); err != nil {
			return err
		}
	}
	l.say("%s: the router between %d segments, and the world behind it", OutsideName, len(l.topo.Segments))
	if err := newNetns(l.l.netns(OutsideName)); err != nil {
		return err
	}
	if err := l.makeOutside(); err != nil {
		return err
	}
	for _, n := range l.topo.Nodes {
		if err := l.makeNode(n); err != nil {
			return err
		}
	}
	if err := writeJSON(l.l.spec(), l.spec); err != nil {
		return err
	}
	if err := l.startNodes(ctx, l.topo.Nodes...); err != nil {
		return err
	}
	for _, n := range l.topo.Nodes {
		if err := l.completed(n); err != nil {
			return err
		}
	}
	return writeFile(l.l.ready(), nil)
}

func (l *lab) makeDirs() error {
	dirs := []string{l.l.netnsDir(), l.l.podsDir(), l.l.nodesDir()}
	if l.spec.agents() {
		dirs = append(dirs, filepath.Dir(l.l.manifest("")))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}
