// SPDX-License-Identifier: Apache-2.0

// Package repair is what an operator does by hand when no runtime and no
// garbage collection will: release an attachment, rebuild a damaged journal.
package repair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/inspect"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/plugin"
)

// timeout bounds one release.
const timeout = 30 * time.Second

// Release releases what word means (see inspect.Find) and returns the keys. It
// goes the way of a runtime's DEL: through the agent, or without it where that
// is down. An attachment whose sandbox or interface exists is refused unless
// force is set; a word that means several containers is always refused.
func Release(ctx context.Context, n inspect.Node, word string, force bool) ([]string, error) {
	f, err := journal.Read(n.StateDir, facts.New)
	if err != nil {
		return nil, err
	}
	records, err := inspect.Find(f, word)
	if err != nil {
		return nil, err
	}
	if err := refuseSeveral(word, records); err != nil {
		return nil, err
	}
	if err := n.Elsewhere(); err != nil {
		return nil, err
	}
	if !force {
		if err := refuseLiving(records); err != nil {
			return nil, err
		}
	}
	var released []string
	for _, rec := range records {
		outcome, err := release(ctx, n, rec, force)
		if err != nil {
			return released, fmt.Errorf("release %s: %w", rec.Key, err)
		}
		released = append(released, outcome)
	}
	return released, nil
}

// release ends one record, by force if DEL cannot, and returns its key with
// what there is to say.
func release(ctx context.Context, n inspect.Node, rec facts.Record, force bool) (string, error) {
	err := del(ctx, n, rec)
	if err == nil || !force {
		return rec.Key.String(), err
	}
	if ferr := forget(ctx, n, rec); ferr != nil {
		return "", errors.Join(err, ferr)
	}
	return rec.Key.String() + " (by force: " + err.Error() + ")", nil
}

// refuseSeveral refuses a word that means more than one container: a pod name
// in several namespaces, the beginning of several ids.
func refuseSeveral(word string, records []facts.Record) error {
	for _, rec := range records {
		if rec.Key.ContainerID != records[0].Key.ContainerID {
			return fmt.Errorf("%q means several containers, among them %s and %s: say which, by its address or its key", word, records[0].Key, rec.Key)
		}
	}
	return nil
}

func refuseLiving(records []facts.Record) error {
	k, err := kernel.Open()
	if err != nil {
		return err
	}
	defer k.Close()
	for _, rec := range records {
		ev, err := engine.Witness(rec, k, true)
		if err != nil {
			return err
		}
		if !ev.Dead() {
			return fmt.Errorf("attachment %s is in use: its sandbox lives; delete the pod, or use --force to cut it off", rec.Key)
		}
	}
	return nil
}

// forget ends a record that DEL cannot end, because the IPAM plugin that
// granted its addresses refuses or is gone. What that plugin still holds is for
// the operator, who has been told why.
func forget(ctx context.Context, n inspect.Node, rec facts.Record) error {
	store, err := journal.Share(n.StateDir, facts.New)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	k, err := kernel.Open()
	if err != nil {
		return err
	}
	defer k.Close()
	if err := k.Detach(rec.Key.HostIfname()); err != nil {
		return err
	}
	return store.Update(ctx, func(*facts.Facts) ([]string, error) {
		releasing, err := facts.EncodeReleasing(time.Now().UnixNano(), rec.Key)
		if err != nil {
			return nil, err
		}
		released, err := facts.EncodeReleased(time.Now().UnixNano(), rec.Key)
		return []string{releasing, released}, err
	})
}

func del(ctx context.Context, n inspect.Node, rec facts.Record) error {
	config, err := json.Marshal(map[string]string{
		"cniVersion": cni.NewestVersion, "name": rec.Key.Network, "type": "weft-cni", "socket": n.SocketPath(), "stateDir": n.StateDir,
	})
	if err != nil {
		return err
	}
	call := cni.Call{Command: cni.Del, ContainerID: rec.Key.ContainerID, Ifname: rec.Key.Ifname, Stdin: config}
	if _, cerr := plugin.Forward(ctx, call, cni.Forwarding{Socket: n.SocketPath(), Timeout: timeout}); cerr != nil {
		return cerr
	}
	return nil
}

// Journal rebuilds a damaged journal: from the lines that are good, and from
// the interfaces that exist, so that no address in use is ever given out
// again. It returns what it did, line by line. An undamaged journal is left
// alone.
func Journal(ctx context.Context, dir string) ([]string, error) {
	_, err := journal.Read(dir, facts.New)
	var corrupt *journal.CorruptError
	switch {
	case err == nil:
		return []string{"the journal is not damaged; nothing to repair"}, nil
	case !errors.As(err, &corrupt):
		return nil, err
	}
	good, bad, err := journal.Salvage(dir, facts.New)
	if err != nil {
		return nil, err
	}
	var report []string
	for _, b := range bad {
		report = append(report, fmt.Sprintf("line %d dropped: %s: %q", b.Line, b.Reason, b.Text))
	}
	aside, err := journal.Replace(ctx, dir, good)
	if err != nil {
		return report, err
	}
	report = append(report, fmt.Sprintf("journal rewritten with %d records; the damaged file is %s", good.Len(), aside))
	adopted, err := adopt(ctx, dir)
	return append(report, adopted...), err
}

func adopt(ctx context.Context, dir string) ([]string, error) {
	store, err := journal.Share(dir, facts.New)
	if err != nil {
		return nil, err
	}
	defer func() { _ = store.Close() }()
	k, err := kernel.Open()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	report, err := vouch(ctx, store, k)
	if err != nil {
		return report, err
	}
	e := &engine.Engine{Store: store, Kernel: k, Delegates: plugin.Delegates{}, Instance: dir, Now: time.Now, Node: func() kernel.Node { return kernel.Node{} }}
	findings, err := e.Adopt(ctx)
	for _, f := range findings {
		report = append(report, f.String())
	}
	return report, err
}

// vouch completes the records whose interface exists: their completion was on a
// damaged line, and without it garbage collection would undo a running pod.
func vouch(ctx context.Context, store *journal.Store[*facts.Facts], k *kernel.Handle) ([]string, error) {
	var report []string
	err := store.Update(ctx, func(f *facts.Facts) ([]string, error) {
		var entries []string
		for _, rec := range f.Records() {
			if rec.Phase != facts.Intent {
				continue
			}
			ev, err := engine.Witness(rec, k, true)
			if err != nil {
				return nil, err
			}
			if !ev.Link {
				continue
			}
			entry, err := facts.EncodeComplete(time.Now().UnixNano(), rec.Key)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry)
			report = append(report, fmt.Sprintf("%s %v: its interface exists: completed", rec.Key, rec.Addresses))
		}
		return entries, nil
	})
	return report, err
}
