// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// ours parses an ipam section in both programs, which must agree.
func ours(t *testing.T, members ...string) (*IPAMConfig, *Error) {
	t.Helper()
	cfg, err := ParseConfig(request(Add, members...))
	other, otherErr := ParseIPAMCall(request(Add, members...))
	if (err == nil) != (otherErr == nil) {
		t.Fatalf("weft-cni says %v, weft-ipam says %v", err, otherErr)
	}
	if err != nil {
		return nil, err
	}
	if a, b := cfg.IPAM.Pool.String(), other.IPAM.Pool.String(); a != b {
		t.Fatalf("weft-cni has the pool %s, weft-ipam %s", a, b)
	}
	return cfg.IPAM, nil
}

func section(keys string) string { return `"ipam":{"type":"weft-ipam",` + keys + `}` }

func TestPool(t *testing.T) {
	for name, tt := range map[string]struct {
		members []string
		want    string // the pool
		sets    int
	}{
		"one range of old": {[]string{section(`"subnet":"10.1.0.0/24"`)}, "10.1.0.0/24 (10.1.0.1-10.1.0.254)", 1},
		"one range of old, bounded": {
			[]string{section(`"subnet":"10.1.0.0/24","rangeStart":"10.1.0.10","rangeEnd":"10.1.0.20","gateway":"10.1.0.254"`)},
			"10.1.0.0/24 (10.1.0.10-10.1.0.20)", 1,
		},
		"list": {
			[]string{section(`"ranges":[[{"subnet":"10.1.0.0/24"},{"subnet":"10.3.0.0/24","rangeStart":"10.3.0.9"}],[{"subnet":"fd00::/64","exclude":["fd00::/80","fd00:0:0:0:1::5"]}]]`)},
			"10.1.0.0/24 (10.1.0.1-10.1.0.254), 10.3.0.0/24 (10.3.0.9-10.3.0.254), fd00::/64 (fd00::1-fd00::ffff:ffff:ffff:ffff)", 2,
		},
		"old and list": {
			[]string{section(`"subnet":"10.1.0.0/24","ranges":[[{"subnet":"fd00::/120"}]]`)},
			"10.1.0.0/24 (10.1.0.1-10.1.0.254), fd00::/120 (fd00::1-fd00::ff)", 2,
		},
		"runtime's behind ours": {
			[]string{section(`"subnet":"10.1.0.0/24"`), `"runtimeConfig":{"ipRanges":[[{"Subnet":"10.2.0.0/24","RangeStart":"10.2.0.7"}]]}`},
			"10.1.0.0/24 (10.1.0.1-10.1.0.254), 10.2.0.0/24 (10.2.0.7-10.2.0.254)", 2,
		},
		"runtime's alone": {
			[]string{section(`"routes":[]`), `"runtimeConfig":{"ipRanges":[[{"subnet":"10.2.0.0/24"}]]}`},
			"10.2.0.0/24 (10.2.0.1-10.2.0.254)", 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := ours(t, tt.members...)
			wantNoError(t, err)
			if got := cfg.Pool.String(); got != tt.want || len(cfg.Pool.Sets) != tt.sets {
				t.Errorf("got %d sets: %s\nwant %d: %s", len(cfg.Pool.Sets), got, tt.sets, tt.want)
			}
		})
	}
}

func TestPoolDetails(t *testing.T) {
	cfg, err := ours(t, section(`"subnet":"10.1.0.0/24","gateway":"10.1.0.254","exclude":["10.1.0.8/29","10.1.0.77"]`))
	wantNoError(t, err)
	r := cfg.Pool.Sets[0][0]
	if r.Gateway != netip.MustParseAddr("10.1.0.254") || len(r.Exclude) != 2 || r.Exclude[1] != netip.MustParsePrefix("10.1.0.77/32") {
		t.Errorf("got %+v", r)
	}
}

func TestIPAMRefuses(t *testing.T) {
	for keys, want := range map[string][]string{
		`"routes":[]`:             {"ipam:", "range"},
		`"ranges":[]`:             {"ipam:", "range"},
		`"ranges":[[]]`:           {"ranges[0]"},
		`"ranges":[[{}]]`:         {`ipam.ranges[0][0].subnet ""`},
		`"subnet":"10.1.0.0"`:     {`ipam.subnet "10.1.0.0"`},
		`"rangeStart":"10.1.0.1"`: {`ipam.subnet ""`},
		`"subnet":"10.1.0.1/24"`:  {"10.1.0.1/24", "10.1.0.0/24"},
		`"ranges":[[{"subnet":"10.0.0.0/24"}],[{"subnet":"10.1.0.0/24"},{"subnet":"10.2.0.0/24","rangeStart":"10.9.0.1"}]]`: {"ipam.ranges[1][1]", "10.9.0.1", "10.2.0.0"},
		`"ranges":[[{"subnet":"10.0.0.0/24","rangeStart":"x"}]]`:                                                            {`ipam.ranges[0][0].rangeStart "x"`},
		`"ranges":[[{"subnet":"10.0.0.0/24","rangeEnd":"x"}]]`:                                                              {`ipam.ranges[0][0].rangeEnd "x"`},
		`"ranges":[[{"subnet":"10.0.0.0/24","gateway":"fe80::1%a"}]]`:                                                       {`ipam.ranges[0][0].gateway "fe80::1%a"`},
		`"ranges":[[{"subnet":"10.0.0.0/24","exclude":["10.0.0.1","y"]}]]`:                                                  {`ipam.ranges[0][0].exclude[1] "y"`},
		// Overlaps name both ranges.
		`"ranges":[[{"subnet":"10.0.0.0/16"}],[{"subnet":"10.0.3.0/24"}]]`: {"10.0.0.0/16", "10.0.3.0/24", "overlaps"},
		`"subnet":"10.0.0.0/16","ranges":[[{"subnet":"10.0.3.0/24"}]]`:     {"10.0.0.0/16", "10.0.3.0/24", "overlaps"},
		// Families do not mix in a set.
		`"ranges":[[{"subnet":"10.0.0.0/16"},{"subnet":"fd00::/64"}]]`: {"10.0.0.0/16", "fd00::/64"},

		`"subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0"}]`:                      {`ipam.routes[0].dst "10.0.0.0"`},
		`"subnet":"10.1.0.0/24","routes":[{"dst":"0.0.0.0/0"},{}]`:                  {`ipam.routes[1].dst ""`},
		`"subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.9/8"}]`:                    {"host bits", "10.0.0.0/8"},
		`"subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","gw":"x"}]`:           {`ipam.routes[0].gw "x"`},
		`"subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","gw":"fe80::1"}]`:     {"ipam.routes[0].gw fe80::1", "family"},
		`"subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","mtu":-1}]`:           {"ipam.routes[0].mtu -1"},
		`"subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","advmss":65536}]`:     {"ipam.routes[0].advmss 65536"},
		`"subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","priority":-2}]`:      {"ipam.routes[0].priority -2"},
		`"subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","table":4294967296}]`: {"ipam.routes[0].table 4294967296"},
		`"subnet":"10.1.0.0/24","routes":[{"dst":"10.0.0.0/8","scope":256}]`:        {"ipam.routes[0].scope 256"},
		`"subnet":"10.1.0.0/24","dataDir":"x"`:                                      {`ipam.dataDir "x"`},
		`"subnet":"10.1.0.0/24","resolvConf":"x"`:                                   {`ipam.resolvConf "x"`},
		`"subnet":"10.1.0.0/24","stateDir":"x"`:                                     {`ipam.stateDir "x"`},
	} {
		_, err := ours(t, section(keys))
		wantError(t, err, CodeConfig, want...)
	}
	_, err := ours(t, thinIPAM, `"runtimeConfig":{"ipRanges":[[{"subnet":"10.1.0.128/25"}]]}`)
	wantError(t, err, CodeConfig, "10.1.0.0/24", "10.1.0.128/25", "overlaps")
	_, err = ours(t, thinIPAM, `"runtimeConfig":{"ipRanges":[[{"subnet":"10.9.0.0/24"}],[{"subnet":"z"}]]}`)
	wantError(t, err, CodeConfig, `runtimeConfig.ipRanges[1][0].subnet "z"`)
}

func TestCooldown(t *testing.T) {
	for value, want := range map[string]time.Duration{
		`null`: 30 * time.Second, `0`: 0, `45`: 45 * time.Second, `"0s"`: 0, `"2m"`: 2 * time.Minute, `"1.5s"`: 1500 * time.Millisecond,
		`86400`: 24 * time.Hour, `"24h"`: 24 * time.Hour,
	} {
		cfg, err := ours(t, section(`"subnet":"10.1.0.0/24","cooldown":`+value))
		wantNoError(t, err)
		if cfg.Cooldown != want {
			t.Errorf("%s became %s", value, cfg.Cooldown)
		}
	}
	cfg, err := ours(t, thinIPAM)
	wantNoError(t, err)
	if cfg.Cooldown != DefaultCooldown {
		t.Errorf("missing: %s", cfg.Cooldown)
	}
	for _, value := range []string{`-1`, `1.5`, `"5"`, `"x"`, `"-5s"`, `86401`, `"25h"`, `true`, `[]`, `{}`, `99999999999999999999`, `1e3`} {
		_, err := ours(t, section(`"subnet":"10.1.0.0/24","cooldown":`+value))
		wantError(t, err, CodeConfig, "ipam.cooldown", strings.Trim(value, `"`))
	}
}

func TestStateDirOfWeftCNI(t *testing.T) {
	cfg := mustParse(t, request(Add, `"stateDir":"/s"`, section(`"subnet":"10.1.0.0/24"`)))
	if cfg.IPAM.StateDir != "/s" {
		t.Errorf("ipam has %q", cfg.IPAM.StateDir)
	}
	mustParse(t, request(Add, `"stateDir":"/s"`, section(`"subnet":"10.1.0.0/24","stateDir":"/s/"`)))
	_, err := ParseConfig(request(Add, `"stateDir":"/s"`, section(`"subnet":"10.1.0.0/24","stateDir":"/other"`)))
	wantError(t, err, CodeConfig, `"/other"`, `"/s"`, "set only stateDir")
}

func TestIPAMCall(t *testing.T) {
	// Another plugin's keys may be of any type.
	foreign := []string{
		`"type":"bridge"`, `"bridge":"cni0"`, `"mtu":"1500"`, `"mac":5`, `"stateDir":5`, `"socket":7`, `"sysctl":"x"`,
		`"dns":[]`, `"timeout":"1s"`, `"runtimeConfig":{"mac":{},"dns":5,"portMappings":[{"hostPort":1}]}`,
	}
	for _, typ := range []string{`"type":"weft-ipam",`, `"type":"host-local",`, ``} {
		cfg, err := ParseIPAMCall(request(Add, append(foreign, `"ipam":{`+typ+`"subnet":"10.1.0.0/24","cooldown":1}`)...))
		wantNoError(t, err)
		if cfg.Type != "bridge" || cfg.StateDir != DefaultStateDir || cfg.IPAM.StateDir != DefaultStateDir || cfg.Thick() ||
			cfg.Timeout != DefaultTimeout || len(cfg.IPAM.Pool.Sets) != 1 || cfg.IPAM.Cooldown != time.Second {
			t.Errorf("ipam with %q: got %+v, %+v", typ, cfg, cfg.IPAM)
		}
	}
	cfg, err := ParseIPAMCall(request(Add, section(`"subnet":"10.1.0.0/24","stateDir":"/s/"`)))
	wantNoError(t, err)
	if cfg.StateDir != "/s" || cfg.IPAM.StateDir != "/s" {
		t.Errorf("state directory %q, %q", cfg.StateDir, cfg.IPAM.StateDir)
	}
	if _, err := ParseIPAMCall(request(Check, thinIPAM)); err != nil {
		t.Errorf("CHECK without prevResult: %v", err)
	}
	for _, verb := range []string{Add, Check, Status} {
		for _, none := range []string{`"x":1`, `"ipam":null`} {
			_, err := ParseIPAMCall(request(verb, none))
			wantError(t, err, CodeConfig, "ipam is missing")
		}
	}
}

func TestIPAMCallDelIsLenient(t *testing.T) {
	for members, dir := range map[string]string{
		`"x":1`:                               DefaultStateDir,
		`"ipam":null`:                         DefaultStateDir,
		`"ipam":5`:                            DefaultStateDir,
		`"ipam":{"stateDir":"x"}`:             DefaultStateDir,
		`"ipam":{"ranges":5,"stateDir":"/s"}`: "/s",
		`"ipam":{"stateDir":"/s/"},"name":5`:  "/s",
		`"runtimeConfig":{"ips":5},"args":7`:  DefaultStateDir,
	} {
		cfg, err := ParseIPAMCall(request(Del, members))
		if err != nil {
			t.Errorf("%s: %v", members, err)
			continue
		}
		if cfg.StateDir != dir || cfg.IPAM != nil && cfg.IPAM.StateDir != dir {
			t.Errorf("%s: state directory %q", members, cfg.StateDir)
		}
	}
}
