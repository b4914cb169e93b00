// SPDX-License-Identifier: Apache-2.0

package install

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/kernel"
)

// Node says where Weft is on a node. The network namespace is the caller's.
type Node struct {
	StateDir string // of agent and plugin
	Socket   string // of the agent; "": the default one in StateDir
	ConfFile string // the network configuration list
	BinDir   string // the runtime's directory of plugins
}

// Options of Uninstall.
type Options struct {
	// Wait is how long to wait for the agent to stop and for pods to go.
	Wait time.Duration
	// Force removes the interfaces of pods that are still there, which cuts
	// them off for good.
	Force bool
}

// Outcome is what became of one object.
type Outcome struct {
	Object string `json:"object"`
	State  string `json:"state"` // removed, kept
	Reason string `json:"reason,omitempty"`
}

// States of an Outcome.
const (
	Removed = "removed"
	Kept    = "kept"
)

// Header implements view.Row.
func (Outcome) Header() []string { return []string{"OBJECT", "STATE", "REASON"} }

// Cells implements view.Row.
func (o Outcome) Cells() []string { return []string{o.Object, o.State, o.Reason} }

// Uninstall removes Weft from a node in the order that the package comment
// gives, and returns what was there. It returns *AgentError or *LivingError, and
// has removed nothing, where agent or pods are still there when the wait is over.
// After another error what could be removed is, and Uninstall can be called
// again: it is idempotent.
func (n Node) Uninstall(ctx context.Context, o Options, log *slog.Logger) ([]Outcome, error) {
	k, err := kernel.Open()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	waiting, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	if err := n.vacant(waiting, k, o.Force, log); err != nil {
		return nil, err
	}
	var outcomes []Outcome
	for _, step := range []func() ([]Outcome, error){
		n.removeConflist,
		func() ([]Outcome, error) { return removeInterfaces(k) },
		removeRoutes,
		removeLinks,
		removeTables,
		n.removeState,
		n.removePlugins,
	} {
		done, err := step()
		outcomes = append(outcomes, done...)
		if err != nil {
			return outcomes, err
		}
	}
	return outcomes, nil
}

func (n Node) removeConflist() ([]Outcome, error) {
	removed, err := removeFile(n.ConfFile)
	if err == nil && removed {
		return []Outcome{{Object: "network configuration " + n.ConfFile, State: Removed}}, nil
	}
	return nil, err
}

// removeInterfaces has something to do only where pods are cut off by force.
func removeInterfaces(k *kernel.Handle) ([]Outcome, error) {
	owned, err := k.Owned()
	if err != nil {
		return nil, fmt.Errorf("look for interfaces of pods: %w", err)
	}
	var names []string
	var outcomes []Outcome
	for _, o := range owned {
		names = append(names, o.HostIfname)
		outcomes = append(outcomes, Outcome{Object: "interface of " + describe(o), State: Removed, Reason: "by force"})
	}
	if len(names) == 0 {
		return nil, nil
	}
	return outcomes, k.DetachAll(names)
}

// removePlugins leaves the plugin where a configuration that somebody else
// wrote executes it: without it not even its pods could be deleted.
func (n Node) removePlugins() ([]Outcome, error) {
	used, err := callers(n.ConfFile, PluginName, IPAMName)
	if err != nil {
		return nil, err
	}
	var outcomes []Outcome
	var errs []error
	for _, name := range []string{IPAMName, PluginName} {
		path := filepath.Join(n.BinDir, name)
		switch {
		case len(used) > 0 && exists(path):
			outcomes = append(outcomes, Outcome{
				Object: "plugin " + path, State: Kept,
				Reason: fmt.Sprintf("executed by %s in %s; remove that and uninstall again", strings.Join(used, ", "), filepath.Dir(n.ConfFile)),
			})
		case len(used) == 0:
			removed, err := removeFile(path)
			errs = append(errs, err)
			if removed {
				outcomes = append(outcomes, Outcome{Object: "plugin " + path, State: Removed})
			}
		}
	}
	return outcomes, errors.Join(append(errs, n.removeUnfinished())...)
}

// removeUnfinished removes what an installation that was killed left behind.
func (n Node) removeUnfinished() error {
	return errors.Join(removeUnfinished(n.BinDir), removeUnfinished(filepath.Dir(n.ConfFile)))
}

func (n Node) socket() string {
	if n.Socket != "" {
		return n.Socket
	}
	return filepath.Join(n.StateDir, v1alpha1.DefaultSocketName)
}
