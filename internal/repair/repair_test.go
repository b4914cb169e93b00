// SPDX-License-Identifier: Apache-2.0

package repair

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/inspect"
	"weft.dev/weft/internal/journal"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/kernel/nstest"
)

// pod is one attachment in the kernel and in the journal of dir, made as ADD
// makes it.
func pod(t *testing.T, dir string, k attach.Key, addr string, sandbox *nstest.NS) {
	t.Helper()
	spec := attach.Spec{Key: k, Instance: dir, Pod: attach.Pod{Namespace: "d", Name: k.ContainerID}, MTU: 1500,
		Addresses: []attach.Address{{Addr: netip.MustParseAddr(addr), Subnet: netip.MustParsePrefix("10.42.0.0/24")}}}
	plan, err := attach.NewPlan(spec)
	if err != nil {
		t.Fatal(err)
	}
	ns, err := kernel.OpenNetns(sandbox.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	h, err := kernel.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	store, err := journal.Share(dir, facts.New)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d := facts.NewDetail(spec)
	d.Netns, d.NetnsID = sandbox.Path, facts.NetnsID(ns.ID())
	err = store.Update(context.Background(), func(*facts.Facts) ([]string, error) {
		intent, err := facts.EncodeIntent(1, k, facts.Veth, []netip.Addr{spec.Addresses[0].Addr}, d)
		if err != nil {
			return nil, err
		}
		complete, err := facts.EncodeComplete(2, k)
		return []string{intent, complete}, err
	})
	if err == nil {
		err = h.Attach(ns, plan)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func journalFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "journal.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("journals %v, %v", files, err)
	}
	return files[0]
}

// Whichever line of a running pod is damaged, the repair keeps the pod.
func TestRepairKeepsRunningPods(t *testing.T) {
	for _, verb := range []string{"intent", "complete"} {
		t.Run(verb, func(t *testing.T) {
			host, sandbox := nstest.New(t), nstest.New(t)
			dir := filepath.Join(t.TempDir(), "state")
			k := attach.Key{Network: "net", ContainerID: "c1", Ifname: "eth0"}
			host.Do(func() {
				pod(t, dir, k, "10.42.0.5", sandbox)
				pod(t, dir, attach.Key{Network: "net", ContainerID: "c2", Ifname: "eth0"}, "10.42.0.6", nstest.New(t))
				file := journalFile(t, dir)
				raw, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				raw = bytes.Replace(raw, []byte(verb+" "), []byte(strings.ToUpper(verb)+" "), 1)
				if err := os.WriteFile(file, raw, 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := journal.Read(dir, facts.New); err == nil {
					t.Fatal("the damage was not noticed")
				}
				report, err := Journal(context.Background(), dir)
				if err != nil {
					t.Fatalf("%v, %v", report, err)
				}
				f, err := journal.Read(dir, facts.New)
				if err != nil {
					t.Fatal(err)
				}
				rec, found := f.Get(k)
				if !found || rec.Phase != facts.Complete || len(rec.Addresses) != 1 || f.Len() != 2 {
					t.Errorf("after the repair: %+v, %v, %d records; report %v", rec, found, f.Len(), report)
				}
			})
		})
	}
}

func TestReleaseRefusesTheLivingAndTheAmbiguous(t *testing.T) {
	host := nstest.New(t)
	dir := filepath.Join(t.TempDir(), "state")
	n := inspect.Node{StateDir: dir}
	host.Do(func() {
		pod(t, dir, attach.Key{Network: "net", ContainerID: "aaaa1", Ifname: "eth0"}, "10.42.0.5", nstest.New(t))
		pod(t, dir, attach.Key{Network: "net", ContainerID: "aaaa2", Ifname: "eth0"}, "10.42.0.6", nstest.New(t))
		for word, want := range map[string]string{"aaaa": "several containers", "10.42.0.5": "is in use"} {
			if _, err := Release(context.Background(), n, word, false); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", word, err, want)
			}
		}
		released, err := Release(context.Background(), n, "10.42.0.5", true)
		if err != nil || len(released) != 1 {
			t.Fatalf("by force: %v, %v", released, err)
		}
		f, err := journal.Read(dir, facts.New)
		if err != nil || f.Len() != 1 {
			t.Errorf("%d records are left, %v", f.Len(), err)
		}
	})
}
