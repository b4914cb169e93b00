// SPDX-License-Identifier: Apache-2.0

package wish

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/cluster"
)

type notes = map[string]string

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		pod, namespace notes
		want           Wish
	}{
		"nothing":            {nil, nil, Wish{}},
		"what is others'":    {notes{"example.com/ipv4": "x", "weft.development/pool": "x"}, notes{"weft": "x"}, Wish{}},
		"addresses":          {notes{IPv6: "FD00:42:0::7", IPv4: "10.42.3.7"}, nil, asks("10.42.3.7", "fd00:42::7")},
		"the pod's pool":     {notes{Pool: "public"}, notes{Pool: "team-a.example"}, Wish{Pool: "public"}},
		"namespace's pool":   {notes{Sticky: "false"}, notes{Pool: "team-a.example"}, Wish{Pool: "team-a.example"}},
		"a MAC and an MTU":   {notes{MAC: "02:01:0A:03:04:fF", MTU: "68"}, nil, Wish{MAC: attach.MAC{2, 1, 10, 3, 4, 255}, MTU: 68}},
		"the largest MTU":    {notes{MTU: "65535", IPv6: "fd00::7"}, nil, Wish{MTU: 65535, Addresses: asks("fd00::7").Addresses}},
		"sticky":             {notes{Sticky: "true"}, nil, sticky},
		"the least for IPv6": {notes{MTU: "1280", IPv6: "fd00::7"}, nil, Wish{MTU: 1280, Addresses: asks("fd00::7").Addresses}},
	} {
		got, err := Parse(c.pod, c.namespace)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		pod, namespace notes
		want           []string
	}{
		"unknown":           {notes{"weft.dev/ip": "10.42.3.7"}, nil, []string{`annotation weft.dev/ip of the pod is "10.42.3.7": there is no such annotation; there are weft.dev/ipv4, weft.dev/ipv6,`}},
		"of a namespace":    {nil, notes{Sticky: "true"}, []string{`annotation weft.dev/sticky of the namespace is "true": want weft.dev/pool only`}},
		"IPv4 for IPv6":     {notes{IPv6: "10.42.3.7"}, nil, []string{"want an IPv6 address"}},
		"IPv6 for IPv4":     {notes{IPv4: "::ffff:10.42.3.7"}, nil, []string{"want an IPv4 address"}},
		"mapped":            {notes{IPv6: "::ffff:10.42.3.7"}, nil, []string{"IPv4-mapped"}},
		"zone":              {notes{IPv6: "fd00::7%eth0"}, nil, []string{"has a zone"}},
		"a prefix":          {notes{IPv4: "10.42.3.7/24"}, nil, []string{"10.42.3.7/24"}},
		"loopback":          {notes{IPv4: "127.0.0.1"}, nil, []string{"is loopback"}},
		"spaces":            {notes{IPv4: " 10.42.3.7"}, nil, []string{`" 10.42.3.7"`}},
		"empty":             {notes{IPv4: "", Pool: "", MAC: "", MTU: "", Sticky: ""}, nil, []string{IPv4, Pool, MAC, MTU, Sticky}},
		"multicast MAC":     {notes{MAC: "03:01:02:03:04:05"}, nil, []string{"want a unicast EUI-48 address"}},
		"zero MAC":          {notes{MAC: "00:00:00:00:00:00"}, nil, []string{"unicast"}},
		"short MAC":         {notes{MAC: "02:01:02:03:04"}, nil, []string{"unicast"}},
		"long MAC":          {notes{MAC: "02:01:02:03:04:05:06:07"}, nil, []string{"unicast"}},
		"sloppy MAC":        {notes{MAC: "2:1:2:3:4:5"}, nil, []string{"unicast"}},
		"MTU too small":     {notes{MTU: "67"}, nil, []string{"from 68 to 65535"}},
		"MTU too large":     {notes{MTU: "65536"}, nil, []string{"from 68 to 65535"}},
		"MTU negative":      {notes{MTU: "-1500"}, nil, []string{"from 68 to 65535"}},
		"MTU less for IPv6": {notes{MTU: "1279", IPv6: "fd00::7"}, nil, []string{"want 1280 at least"}},
		"sticky, perhaps":   {notes{Sticky: "yes"}, nil, []string{`want "true" or "false"`}},
		"pool":              {notes{Pool: "Public"}, notes{Pool: "a/b"}, []string{`pod is "Public"`, `namespace is "a/b"`}},
		"the namespace's is read though the pod has one": {notes{Pool: "public"}, notes{Pool: "a/b"}, []string{"namespace"}},
		"endless":  {notes{Pool: strings.Repeat("a", 254)}, nil, []string{strings.Repeat("a", 80) + `"`}},
		"everyone": {notes{IPv4: "x", MAC: "y", "weft.dev/z": "z"}, notes{"weft.dev/n": "n"}, []string{`"x"`, `"y"`, `"z"`, `"n"`}},
	} {
		got, err := Parse(c.pod, c.namespace)
		var re *RefusedError
		if !errors.As(err, &re) || re.Reason != InvalidAnnotation || !reflect.DeepEqual(got, Wish{}) {
			t.Errorf("%s: %+v, %v, want a refusal", name, got, err)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(re.Msg, part) {
				t.Errorf("%s: no %q in %q", name, part, re.Msg)
			}
		}
	}
}

// What is accepted is what the kernel and Resolve can work with, and reading
// what it says again says the same.
func FuzzParse(f *testing.F) {
	f.Add("10.42.3.7", "fd00:42::7", "public", "02:01:02:03:04:05", "1500", "true")
	f.Add("127.0.0.1", "fe80::1%1", "..", "03:01:02:03:04:05", "067", "TRUE")
	f.Fuzz(func(t *testing.T, ipv4, ipv6, pool, mac, mtu, sticky string) {
		w, err := Parse(notes{IPv4: ipv4, IPv6: ipv6, Pool: pool, MAC: mac, MTU: mtu, Sticky: sticky}, nil)
		if err != nil {
			if err.Error() == "" {
				t.Error("refused without a word")
			}
			return
		}
		switch {
		case len(w.Addresses) != 2 || !w.Addresses[0].Is4() || !w.Addresses[1].Is6():
			t.Errorf("addresses %v", w.Addresses)
		case cluster.UsableAddress(w.Addresses[0]) != nil || cluster.UsableAddress(w.Addresses[1]) != nil:
			t.Errorf("unusable addresses %v", w.Addresses)
		case w.MAC.IsZero() || w.MAC[0]&1 != 0 || !strings.EqualFold(w.MAC.String(), mac):
			t.Errorf("MAC %s of %q", w.MAC, mac)
		case w.MTU < attach.MinMTU6 || w.MTU > attach.MaxMTU || w.Pool != pool || w.Sticky != (sticky == "true"):
			t.Errorf("%+v", w)
		}
		again, err := Parse(notes{
			IPv4: w.Addresses[0].String(), IPv6: w.Addresses[1].String(), Pool: pool, MAC: w.MAC.String(), MTU: mtu, Sticky: sticky,
		}, nil)
		if err != nil || !reflect.DeepEqual(again, w) {
			t.Errorf("again: %+v, %v; before: %+v", again, err, w)
		}
	})
}
