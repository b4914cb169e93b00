// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"reflect"
	"syscall"
	"time"

	"weft.dev/weft/api/v1alpha1"
)

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

// content is what tells one content of the configuration file from another.
type content struct {
	effective, before glance
}

// glance is what changes with the content of a file.
type glance struct {
	inode   uint64
	size    int64
	written int64 // Unix time in nanoseconds
}

// look returns the zero glance for a file that cannot be seen. One look is one
// stat(2), which works for replaced files and switched symbolic links alike.
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

// readConfiguration takes a change of the file in, once the file has not
// changed between two looks: editors write in several steps.
func (a *Agent) readConfiguration(now time.Time) {
	if a.file == "" || now.Sub(a.looked.file) < lookInterval {
		return
	}
	a.looked.file = now
	is := look(a.file)
	settled := is == a.content.before
	a.content.before = is
	if !settled || is == a.content.effective {
		return
	}
	a.content.effective = is
	a.configuration.note(a.log, "configuration file not in effect", a.reload())
}

// reload takes the file's content in. Bad content changes nothing.
func (a *Agent) reload() error {
	next, err := LoadConfiguration(a.file)
	if err != nil {
		return err
	}
	now := a.inputs.config
	if reflect.DeepEqual(now, next) {
		return nil
	}
	if field := fixedField(now, next); field != "" {
		return fmt.Errorf("configuration %s: %s has changed, which takes a restart of the agent; nothing of the new content is in effect", a.file, field)
	}
	a.inputs.config = next
	_ = a.level.UnmarshalText([]byte(next.Log.Level)) // validated with the configuration
	a.log.Info("configuration changed", "file", a.file)
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
	case a.Listen != b.Listen:
		return "listen"
	case !reflect.DeepEqual(a.Tracing, b.Tracing):
		return "tracing"
	case a.Log.Format != b.Log.Format:
		return "log.format"
	}
	return ""
}
