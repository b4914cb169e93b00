// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/report"
)

var (
	now   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	web   = attach.Key{Network: "net", ContainerID: "0123456789abcdef", Ifname: "eth0"}
	other = attach.Key{Network: "lan", ContainerID: "c2", Ifname: "net1"}
)

// world is facts with one attachment, one reservation and one released
// address; sandbox is the attachment's namespace, a file here.
func world(t *testing.T) (f *facts.Facts, sandbox string) {
	t.Helper()
	sandbox = filepath.Join(t.TempDir(), "ns")
	if err := os.WriteFile(sandbox, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	id, err := kernel.StatNetns(sandbox)
	if err != nil {
		t.Fatal(err)
	}
	addr := attach.Address{Addr: netip.MustParseAddr("10.0.0.2"), Subnet: netip.MustParsePrefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.1")}
	d := facts.NewDetail(attach.Spec{Key: web, Pod: attach.Pod{Namespace: "default", Name: "web"}, MTU: 1500, Addresses: []attach.Address{addr},
		Routes: []attach.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}}})
	d.Netns, d.NetnsID = sandbox, facts.NetnsID(id)
	r, err := ipam.NewRange(ipam.Range{Subnet: addr.Subnet})
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(engine.Network{Pool: ipam.Pool{Sets: []ipam.Set{{r}}}, Cooldown: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	lan := attach.Address{Addr: netip.MustParseAddr("192.168.0.9"), Subnet: netip.MustParsePrefix("192.168.0.0/28")}
	at := now.Add(-10 * time.Second).UnixNano()
	f = facts.New()
	for _, encode := range []func() (string, error){
		func() (string, error) { return facts.EncodeConfig(at, string(config)) },
		func() (string, error) {
			return facts.EncodeIntent(at, attach.Key{Network: "net", ContainerID: "gone", Ifname: "eth0"}, facts.Veth, []netip.Addr{netip.MustParseAddr("10.0.0.3")}, d)
		},
		func() (string, error) {
			return facts.EncodeReleased(at, attach.Key{Network: "net", ContainerID: "gone", Ifname: "eth0"})
		},
		func() (string, error) { return facts.EncodeIntent(at, web, facts.Veth, []netip.Addr{addr.Addr}, d) },
		func() (string, error) { return facts.EncodeComplete(at, web) },
		func() (string, error) {
			return facts.EncodeReserve(at, other, []netip.Addr{lan.Addr}, facts.NewDetail(attach.Spec{Key: other, Addresses: []attach.Address{lan}}))
		},
	} {
		entry, err := encode()
		if err == nil {
			err = f.Apply(entry)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return f, sandbox
}

func cells[R interface{ Cells() []string }](rows []R) string {
	var lines []string
	for _, r := range rows {
		lines = append(lines, strings.Join(r.Cells(), " | "))
	}
	return strings.Join(lines, "\n")
}

func TestAttachments(t *testing.T) {
	f, _ := world(t)
	rows, err := Attachments(f, now)
	if err != nil {
		t.Fatal(err)
	}
	want := " | lan | net1 | 192.168.0.9 | complete |  | 10s | c2\n" +
		"default/web | net | eth0 | 10.0.0.2 | complete | " + web.HostIfname() + " | 10s | 0123456789ab"
	if got := cells(rows); got != want {
		t.Errorf("rows\n%s\nwant\n%s", got, want)
	}
}

func TestFind(t *testing.T) {
	f, _ := world(t)
	for _, word := range []string{"default/web", "web", "10.0.0.2", "0123", "0123456789abcdef", web.String()} {
		if found, err := Find(f, word); err != nil || len(found) != 1 || found[0].Key != web {
			t.Errorf("%q: %v, %v", word, found, err)
		}
	}
	for _, word := range []string{"", "nobody", "10.0.0.3", "012"} {
		if found, err := Find(f, word); err == nil {
			t.Errorf("%q found %v", word, found)
		}
	}
}

func TestEveryObjectSaysWhy(t *testing.T) {
	f, _ := world(t)
	details, err := Details(f, "/run/weft", "web", now)
	if err != nil || len(details) != 1 {
		t.Fatal(details, err)
	}
	text := cells(details[0].Objects)
	for _, want := range []string{
		"address 10.0.0.2/32 | granted from 10.0.0.0/24", "route 0.0.0.0/0 via 10.0.0.1 | configured routes",
		"neighbour 10.0.0.1 is " + attach.HostMAC.String(), "host | route 10.0.0.2/32 dev " + web.HostIfname(),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, o := range details[0].Objects {
		if o.Reason == "" {
			t.Errorf("%s has no reason", o.Object)
		}
	}
}

func TestRangesAndAddresses(t *testing.T) {
	f, _ := world(t)
	ranges, err := Ranges(f, now)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cells(ranges), "(agent) | 10.0.0.0/24 (10.0.0.1-10.0.0.254) | 253 | 1 | 252 | 1\nlan | 192.168.0.0/28 (192.168.0.1-192.168.0.14) | 13 | 1 | 12 | 0"; got != want {
		t.Errorf("ranges\n%s\nwant\n%s", got, want)
	}
	addrs, err := Addresses(f, now)
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, a := range addrs {
		states = append(states, fmt.Sprint(a.Address, " ", a.State))
	}
	if got := strings.Join(states, ", "); got != "10.0.0.2 used, 10.0.0.3 cooling, 192.168.0.9 used" {
		t.Errorf("addresses %s", got)
	}
	if addrs, err = Addresses(f, now.Add(time.Hour)); err != nil || addrs[1].State != "released" {
		t.Errorf("an hour later: %v, %v", addrs, err)
	}
}

// An address that a pod has to itself, in no block of the node, is no range that
// could be full.
func TestSingleAddressIsNotExhausted(t *testing.T) {
	f, _ := world(t)
	single := attach.Address{Addr: netip.MustParseAddr("10.0.9.7"), Subnet: netip.MustParsePrefix("10.0.9.7/32"), Gateway: netip.MustParseAddr("10.0.0.1")}
	key := attach.Key{Network: "net", ContainerID: "sticky", Ifname: "eth0"}
	entry, err := facts.EncodeIntent(now.UnixNano(), key, facts.Veth, []netip.Addr{single.Addr},
		facts.NewDetail(attach.Spec{Key: key, MTU: 1500, Addresses: []attach.Address{single}}))
	if err == nil {
		err = f.Apply(entry)
	}
	if err != nil {
		t.Fatal(err)
	}
	rows := rangeStatus(f, now)
	if len(rows) != 2 {
		t.Errorf("%d rows, want those of the agent's range and of lan: %v", len(rows), rows)
	}
	for _, r := range rows {
		if r.State != report.Good {
			t.Errorf("%s: %s", r.State, r.Detail)
		}
	}
}

type fakeLinks []kernel.Owned

func (l fakeLinks) Owned() ([]kernel.Owned, error) { return l, nil }

func TestProblems(t *testing.T) {
	f, sandbox := world(t)
	present := fakeLinks{{HostIfname: web.HostIfname(), Alias: attach.Alias("/run/weft", web, attach.Pod{})}}
	find := func(links fakeLinks) string {
		t.Helper()
		problems, err := Problems(f, links, "/run/weft", now)
		if err != nil {
			t.Fatal(err)
		}
		return cells(problems)
	}
	// The reservation's sandbox was never known: that is no evidence of life.
	quiet := find(present)
	if strings.Contains(quiet, web.String()) || !strings.Contains(quiet, other.String()) {
		t.Errorf("a good attachment: %s", quiet)
	}
	if got := find(nil); !strings.Contains(got, "the sandbox lives, its interface is gone") {
		t.Errorf("no interface: %s", got)
	}
	stray := attach.Key{Network: "net", ContainerID: "stray", Ifname: "eth0"}
	got := find(append(present,
		kernel.Owned{HostIfname: stray.HostIfname(), Alias: attach.Alias("/run/weft", stray, attach.Pod{})},
		kernel.Owned{HostIfname: "weftother", Alias: attach.Alias("/elsewhere", stray, attach.Pod{})}))
	if strings.Count(got, "no record of net/stray/eth0") != 1 {
		t.Errorf("a stray interface: %s", got)
	}
	if err := os.Remove(sandbox); err != nil {
		t.Fatal(err)
	}
	if got := find(nil); !strings.Contains(got, "sandbox "+sandbox+" is gone") {
		t.Errorf("no sandbox: %s", got)
	}
}
