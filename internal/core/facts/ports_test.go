// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weft.dev/weft/internal/core/attach"
)

func portKey(i int) attach.Key {
	return attach.Key{Network: "net", ContainerID: fmt.Sprintf("c%d", i), Ifname: "eth0"}
}

func applyPorts(t interface{ Fatal(...any) }, f *Facts, at int64, k attach.Key, pod string, ports []attach.Port) {
	d := NewDetail(attach.Spec{Key: k, Pod: attach.Pod{Namespace: "default", Name: pod}, Ports: ports, Limits: attach.Limits{Ingress: attach.Limit{Rate: 1}}})
	entry, err := EncodeIntent(at, k, Veth, nil, d)
	if err == nil {
		err = f.Apply(entry)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestPortErrorNamesPortAndHolder(t *testing.T) {
	f := New()
	applyPorts(t, f, 1, portKey(1), "web-0", []attach.Port{{Protocol: attach.TCP, HostPort: 8080, ContainerPort: 80}})
	err := f.CheckPorts(portKey(2), []attach.Port{{Protocol: attach.TCP, HostIP: netip.MustParseAddr("192.0.2.1"), HostPort: 8080, ContainerPort: 81}})
	var held *PortError
	if !errors.As(err, &held) || held.Owner != portKey(1) || held.Pod.Name != "web-0" {
		t.Fatalf("got %v", err)
	}
	for _, word := range []string{"tcp 192.0.2.1:8080", "net/c2/eth0", "pod default/web-0", "net/c1/eth0", "tcp *:8080"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in %q", word, err)
		}
	}
	// The holder itself may have it again, and whoever comes after it.
	if err := f.CheckPorts(portKey(1), []attach.Port{{Protocol: attach.TCP, HostPort: 8080}}); err != nil {
		t.Error(err)
	}
}

// Whatever comes and goes, no two records have a port in common, and one that
// is refused overlaps with one that is held.
func TestPortsHaveOneHolder(t *testing.T) {
	ips := []netip.Addr{{}, netip.IPv4Unspecified(), netip.IPv6Unspecified(), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	rapid.Check(t, func(t *rapid.T) {
		f, held := New(), map[attach.Key][]attach.Port{}
		for at := range int64(rapid.IntRange(1, 40).Draw(t, "steps")) {
			k := portKey(rapid.IntRange(1, 5).Draw(t, "container"))
			_, has := held[k]
			if has && rapid.Bool().Draw(t, "release") {
				entry, err := EncodeReleased(at+1, k)
				if err == nil {
					err = f.Apply(entry)
				}
				if err != nil {
					t.Fatal(err)
				}
				delete(held, k)
				continue
			}
			want := []attach.Port{{
				Protocol: rapid.SampledFrom([]attach.Protocol{attach.TCP, attach.UDP}).Draw(t, "protocol"),
				HostIP:   rapid.SampledFrom(ips).Draw(t, "address"), HostPort: rapid.Uint16Range(1, 3).Draw(t, "port"), ContainerPort: 80,
			}}
			free := true
			for other, ports := range held {
				for _, p := range ports {
					free = free && (other == k || !p.Overlaps(want[0]))
				}
			}
			err := f.CheckPorts(k, want)
			if (err == nil) != free {
				t.Fatalf("%s for %s: %v; it is free: %v (%v)", want[0], k, err, free, held)
			}
			if err == nil {
				applyPorts(t, f, at+1, k, "web", want)
				held[k] = want
			}
			// A journal that is compacted says the same.
			again := New()
			for entry := range f.Entries {
				if err := again.Apply(entry); err != nil {
					t.Fatal(err)
				}
			}
			if (again.CheckPorts(portKey(9), want) == nil) != (f.CheckPorts(portKey(9), want) == nil) {
				t.Fatalf("after compaction %s is judged otherwise", want[0])
			}
		}
	})
}
