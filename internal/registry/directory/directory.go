// SPDX-License-Identifier: Apache-2.0

package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"weft.dev/weft/internal/registry"
)

// Times. A scan of 10,000 files takes some 20 ms of one processor.
const (
	scanInterval = 30 * time.Second
	firstRetry   = 100 * time.Millisecond
	lastRetry    = 5 * time.Second
	firstPause   = 500 * time.Microsecond
	lastPause    = time.Second
	// nodeGrace is how long a file that held a Node stays in effect when it is
	// gone.
	nodeGrace = 300 * time.Millisecond
	// busyGrace bounds how long files that are being written can keep the
	// first view from being complete.
	busyGrace = 5 * time.Second
)

// Directory is a registry.Cluster. It is safe for concurrent use.
type Directory struct {
	path     string
	node     string
	log      *slog.Logger
	interval time.Duration // between scans
	grace    time.Duration // see nodeGrace
}

// Open returns the registry in the directory of that path, which need not
// exist yet, for a node. Other nodes' labels, which say only what those may
// lease, are not kept; without a name, all are.
func Open(path, node string, log *slog.Logger) (*Directory, error) {
	if path == "" {
		return nil, errors.New("open directory of manifests: no path")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open directory of manifests: %w", err)
	}
	return &Directory{path: path, node: node, log: log, interval: scanInterval, grace: nodeGrace}, nil
}

// Run implements registry.Source. It returns nil.
func (d *Directory) Run(ctx context.Context, into *registry.Store) error {
	f := &follower{Directory: d, store: into, index: newIndex(), retry: firstRetry,
		busy: map[string]struct{}{}, gone: map[string]time.Time{}, pause: firstPause}
	for {
		err := f.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		into.Unreachable(err, time.Now())
		if !f.lost {
			f.lost = true
			d.log.Warn("directory of manifests is out of reach", "path", d.path, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(f.retry):
			f.retry = min(2*f.retry, lastRetry)
		}
	}
}
