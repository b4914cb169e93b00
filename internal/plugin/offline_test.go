// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel/nstest"
)

// record writes into the journal of dir what an agent writes of its network.
func record(t *testing.T, dir string, n engine.Network) {
	t.Helper()
	store, err := journal.Share(dir, facts.New)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	entry, err := facts.EncodeConfig(time.Now().UnixNano(), string(raw))
	if err != nil {
		t.Fatal(err)
	}
	err = store.Update(context.Background(), func(*facts.Facts) ([]string, error) { return []string{entry}, nil })
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
}

func poolOf(t *testing.T, subnet string) ipam.Pool {
	t.Helper()
	r, err := ipam.NewRange(ipam.Range{Subnet: netip.MustParsePrefix(subnet)})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := ipam.NewPool([]ipam.Set{{r}})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

// On a node of a Kubernetes cluster the shim gives no addresses itself, whatever
// the configuration says; DEL works as anywhere.
func TestNoOfflineAddOnKubernetes(t *testing.T) {
	dir := t.TempDir()
	record(t, dir, engine.Network{Pool: poolOf(t, "10.42.0.0/28"), Cluster: engine.Kubernetes})
	cfg := &cni.Config{Name: "n", StateDir: dir, OfflineAdd: true, CNIVersion: "1.1.0"}
	call := cni.Call{Command: cni.Add, ContainerID: "c1", Ifname: "eth0", Netns: nstest.New(t).Path}
	_, cerr := offline(context.Background(), call, cfg)
	if cerr == nil || cerr.Code != cni.CodeTryAgain || !strings.Contains(cerr.Msg, "start the agent") {
		t.Errorf("ADD: %+v, want code %d and what to do", cerr, cni.CodeTryAgain)
	}
	store, err := journal.Share(dir, facts.New)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	err = store.View(context.Background(), func(f *facts.Facts) error {
		if f.Len() != 0 {
			t.Errorf("the refused ADD left %d records", f.Len())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	call.Command = cni.Del
	if _, cerr := offline(context.Background(), call, cfg); cerr != nil {
		t.Errorf("DEL: %v", cerr)
	}
}

func TestOfflineNetwork(t *testing.T) {
	pool, cfg := poolOf(t, "10.42.0.0/28"), &cni.Config{Name: "n", MTU: 1400, StateDir: "/s"}
	for name, c := range map[string]struct {
		recorded engine.Network
		code     cni.Code // 0: served
	}{
		"configured ranges":         {engine.Network{Pool: pool}, 0},
		"a directory":               {engine.Network{Pool: pool, Cluster: "/var/lib/weft/cluster"}, 0},
		"Kubernetes":                {engine.Network{Pool: pool, Cluster: engine.Kubernetes}, cni.CodeTryAgain},
		"Kubernetes, without block": {engine.Network{Cluster: engine.Kubernetes}, cni.CodeTryAgain},
		"nothing recorded":          {engine.Network{}, cni.CodeTryAgain},
	} {
		n, cerr := offlineNetwork(c.recorded, cfg)
		switch {
		case c.code != 0 && (cerr == nil || cerr.Code != c.code):
			t.Errorf("%s: %+v, want code %d", name, cerr, c.code)
		case c.code == 0 && (cerr != nil || n.Name != "n" || n.MTU != 1400 || len(n.Pool.Sets) != 1):
			t.Errorf("%s: %+v, %v", name, n, cerr)
		}
	}
}
