// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"syscall"
	"time"

	"weft.dev/weft/api/v1alpha1"
)

// configurationInterval is how often the file is looked at. One look is one
// stat(2), which works for replaced files and switched symbolic links alike.
const configurationInterval = time.Second

// LoadConfiguration reads and parses the file.
func LoadConfiguration(file string) (v1alpha1.AgentConfiguration, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return v1alpha1.AgentConfiguration{}, fmt.Errorf("read the agent's configuration: %w", err)
	}
	c, err := v1alpha1.ParseAgentConfiguration(raw)
	if err != nil {
		return c, fmt.Errorf("configuration %s: %w", file, err)
	}
	return c, nil
}

// followConfiguration puts changes of the file into effect, once the file has
// not changed between two looks: editors write in several steps.
func (a *Agent) followConfiguration(ctx context.Context) {
	tick := time.NewTicker(configurationInterval)
	defer tick.Stop()
	var effective, before glance // the first look reads the file: it may have changed since it was read
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := look(a.file)
		if now == before && now != effective {
			effective = now
			a.configuration.note(a.log, a.reload(ctx))
		}
		before = now
	}
}

// glance is what changes with the content of a file.
type glance struct {
	inode   uint64
	size    int64
	written int64 // Unix time in nanoseconds
}

// look returns the zero glance for a file that cannot be seen.
func look(file string) (g glance) {
	st, err := os.Stat(file)
	if err != nil {
		return g
	}
	g.size, g.written = st.Size(), st.ModTime().UnixNano()
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		g.inode = sys.Ino
	}
	return g
}

// reload puts the file's content into effect. Bad content changes nothing.
func (a *Agent) reload(ctx context.Context) error {
	next, err := LoadConfiguration(a.file)
	if err != nil {
		return err
	}
	now := a.config()
	if reflect.DeepEqual(now, next) {
		return nil
	}
	if field := fixedField(now, next); field != "" {
		return fmt.Errorf("configuration %s: %s has changed, which takes a restart of the agent; nothing of the new content is in effect", a.file, field)
	}
	if err := a.changeNetwork(ctx, func(in *inputs) { in.config = next }); err != nil {
		return err
	}
	_ = a.logLevel.UnmarshalText([]byte(next.Log.Level)) // validated with the configuration
	a.log.Info("configuration changed", "file", a.file)
	a.readUnderlay()
	if a.cluster != nil {
		a.cluster.kick()
	}
	return nil
}

// fixedField names a field that differs and cannot change while the agent runs.
func fixedField(a, b v1alpha1.AgentConfiguration) string {
	switch {
	case a.StateDir != b.StateDir:
		return "stateDir"
	case a.Socket != b.Socket:
		return "socket"
	case a.NodeName != b.NodeName:
		return "nodeName"
	case !reflect.DeepEqual(a.Cluster, b.Cluster):
		return "cluster"
	case a.Log.Format != b.Log.Format:
		return "log.format"
	}
	return ""
}

// trouble is something that goes wrong until it is over. It is logged once.
type trouble struct {
	what string

	mu  sync.Mutex
	err error
}

func (t *trouble) note(log *slog.Logger, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil && t.err != nil:
		log.Info(t.what + ": well again")
	case err != nil && (t.err == nil || t.err.Error() != err.Error()):
		log.Warn(t.what+", will retry", "error", err)
	}
	t.err = err
}

func (t *trouble) now() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}
