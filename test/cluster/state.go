// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// stateFile is what a later process needs to know of the cluster.
const stateFile = "cluster.json"

// state is the content of the file.
type state struct {
	Options   Options
	Temporary bool
	NextIndex int
	Binaries  binaries
	Nodes     []nodeState
}

type nodeState struct {
	Name  string
	Index int
}

// save writes the state before what it describes is made, so that Load knows at
// least as much as there is.
func (c *Cluster) save() error {
	s := state{Options: c.opts, Temporary: c.temporary, NextIndex: c.nextIndex, Binaries: c.bins}
	for _, n := range c.Nodes {
		s.Nodes = append(s.Nodes, nodeState{n.Name, n.index})
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode state of the cluster: %w", err)
	}
	path := filepath.Join(c.opts.Dir, stateFile)
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("write state of the cluster: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write state of the cluster: %w", err)
	}
	return nil
}

// Load finds the cluster in a directory, in whatever state its creator has left
// it. Of a directory without a cluster it makes one without nodes, which can
// only go Down. Options.CNI and Options.Log are not remembered.
func Load(dir string) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve directory of the cluster: %w", err)
	}
	var s state
	data, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read state of the cluster in %s: %w", dir, err)
	}
	c := &Cluster{opts: s.Options, temporary: s.Temporary, nextIndex: s.NextIndex, bins: s.Binaries, started: time.Now()}
	c.opts.Dir = dir
	c.opts.Log = func(string, ...any) {}
	if c.family, err = parseFamily(s.Options.Family); err != nil {
		return nil, err
	}
	c.cp = c.host(controlPlane)
	for _, n := range s.Nodes {
		c.Nodes = append(c.Nodes, c.makeNode(n.Name, n.Index))
	}
	running, err := holders(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range c.Nodes {
		if pid, ok := running[n.Name]; ok {
			n.Netns, n.RunDir = netns(pid), runDir(pid)
		}
	}
	if _, err := os.Stat(c.Kubeconfig()); err != nil {
		return c, nil
	}
	return c, c.connect()
}

// Running says whether any host of the cluster is.
func (c *Cluster) Running() (bool, error) {
	running, err := holders(c.opts.Dir)
	return len(running) > 0, err
}
