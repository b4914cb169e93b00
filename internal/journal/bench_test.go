// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/journal"
)

func benchKey(i int) attach.Key {
	return attach.Key{Network: "podnet", ContainerID: fmt.Sprintf("%064x", i*7919), Ifname: "eth0"}
}

func benchAddr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)})
}

func benchDetail(addr netip.Addr) facts.Detail {
	return facts.Detail{
		Pod:       attach.Pod{Namespace: "default", Name: "web-7d9c6b8f5-x2x4z", UID: "0a1b2c3d-0000-1111-2222-333344445555"},
		Netns:     "/var/run/netns/cni-0a1b2c3d-0000-1111-2222-333344445555",
		NetnsID:   facts.NetnsID{Dev: 4, Ino: 4026532000},
		MTU:       1450,
		Addresses: []attach.Address{{Addr: addr, Subnet: netip.MustParsePrefix("10.42.0.0/16")}},
		Routes:    []attach.Route{{Dst: netip.MustParsePrefix("0.0.0.0/0")}},
	}
}

// fill4000 writes a compacted journal of complete records.
func fill4000(b *testing.B, dir string) {
	f := facts.New()
	for i := range 4000 {
		for _, enc := range []func() (string, error){
			func() (string, error) {
				return facts.EncodeIntent(int64(1e18+i), benchKey(i), facts.Veth, []netip.Addr{benchAddr(i)}, benchDetail(benchAddr(i)))
			},
			func() (string, error) { return facts.EncodeComplete(int64(1e18+i), benchKey(i)) },
		} {
			e, err := enc()
			if err == nil {
				err = f.Apply(e)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	if _, err := journal.Replace(context.Background(), dir, f); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkShareUpdate4000 is the whole cost of the journal in a plugin's ADD:
// open, lock, read, check, replay 4,000 records, append one, unlock.
func BenchmarkShareUpdate4000(b *testing.B) {
	dir := b.TempDir()
	fill4000(b, dir)
	ctx := context.Background()
	k := benchKey(100_000)
	addr := benchAddr(50_000)
	verb := 0
	b.ReportAllocs()
	for b.Loop() {
		s, err := journal.Share(dir, facts.New)
		if err != nil {
			b.Fatal(err)
		}
		err = s.Update(ctx, func(f *facts.Facts) ([]string, error) {
			if verb++; verb%2 == 0 {
				e, err := facts.EncodeReleased(2e18, k)
				return []string{e}, err
			}
			e, err := facts.EncodeIntent(2e18, k, facts.Veth, []netip.Addr{addr}, benchDetail(addr))
			return []string{e}, err
		})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOwnUpdate is what one step of an attachment costs the agent.
func BenchmarkOwnUpdate(b *testing.B) {
	dir := b.TempDir()
	fill4000(b, dir)
	ctx := context.Background()
	s, err := journal.Own(ctx, dir, facts.New)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	k, verb := benchKey(100_000), 0
	b.ReportAllocs()
	for b.Loop() {
		err = s.Update(ctx, func(*facts.Facts) ([]string, error) {
			if verb++; verb%2 == 0 {
				e, err := facts.EncodeReleased(2e18, k)
				return []string{e}, err
			}
			e, err := facts.EncodeIntent(2e18, k, facts.Veth, []netip.Addr{benchAddr(50_000)}, benchDetail(benchAddr(50_000)))
			return []string{e}, err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
