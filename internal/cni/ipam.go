// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/ipam"
)

// readAddressing settles who gives out addresses: the agent (socket), we
// ourselves, or another plugin (ipam).
func readAddressing(cfg *Config, wire *wirePlugin) (err *Error) {
	ranges := wire.RuntimeConfig.IPRanges
	if cfg.IPAM, err = parseIPAM(wire.IPAM, ranges, false); err != nil {
		return err
	}
	switch {
	case cfg.Thick() && cfg.IPAM != nil:
		return Errorf(CodeConfig, "ipam and socket exclude each other: with socket %s the node agent gives out the addresses, "+
			"without it the plugin works alone and needs ipam; remove one", quote(cfg.Socket))
	case cfg.Thick() && len(ranges) > 0:
		return Errorf(CodeUnsupportedField, "runtimeConfig.ipRanges: with a socket the node agent gives out the addresses, "+
			"but the runtime passed %s; remove \"ipRanges\" from the capabilities", quote(rangesText(ranges)))
	case cfg.Thick():
		return nil
	case cfg.IPAM == nil:
		return Errorf(CodeConfig, "network %s has neither ipam nor socket: set \"ipam\" for a plugin that works alone, "+
			"or \"socket\" to let the node agent give out the addresses", quote(cfg.Name))
	}
	cfg.IPAM.Want = cfg.Want
	if own := cfg.IPAM.StateDir; own != "" && own != cfg.StateDir {
		return Errorf(CodeConfig, "ipam.stateDir %s differs from stateDir %s: one journal holds attachments and addresses; set only stateDir",
			quote(own), quote(cfg.StateDir))
	}
	inheritStateDir(cfg)
	return nil
}

func rangesText(ranges [][]wireRange) string {
	var subnets []string
	for _, set := range ranges {
		for _, r := range set {
			subnets = append(subnets, r.Subnet)
		}
	}
	return strings.Join(subnets, ", ")
}

// inheritStateDir gives the section the directory of the plugin.
func inheritStateDir(cfg *Config) {
	if cfg.IPAM != nil {
		cfg.IPAM.StateDir = cfg.StateDir
	}
}

// adoptStateDir gives the configuration the directory of the section, which is
// all that weft-ipam has of its own.
func adoptStateDir(cfg *Config) {
	if cfg.IPAM != nil && cfg.IPAM.StateDir != "" {
		cfg.StateDir = cfg.IPAM.StateDir
	}
	inheritStateDir(cfg)
}

// sniffIPAM reads what DEL and GC need of the section: whose it is, and where
// its state lies. Nothing in it is an error.
func sniffIPAM(raw json.RawMessage) *IPAMConfig {
	var wire struct {
		Type     string `json:"type"`
		StateDir string `json:"stateDir"`
		DataDir  string `json:"dataDir"`
	}
	if isNull(raw) {
		return nil
	}
	if err := json.Unmarshal(raw, &wire); err != nil && wire.Type == "" && wire.StateDir == "" {
		return nil
	}
	data, err := cleanPath("ipam.dataDir", wire.DataDir)
	if err != nil {
		data = ""
	}
	dir, err := cleanPath("ipam.stateDir", wire.StateDir)
	if err != nil {
		dir = ""
	}
	return &IPAMConfig{Type: wire.Type, Raw: raw, StateDir: dir, DataDir: data, Cooldown: DefaultCooldown}
}

// sniffIPAMStrictly is sniffIPAM for GC in weft-ipam, where a state directory
// that cannot be read must not become another one: what is in use there would
// be judged by a list made for here.
func sniffIPAMStrictly(raw json.RawMessage) (*IPAMConfig, *Error) {
	var wire struct {
		StateDir string `json:"stateDir"`
	}
	if isNull(raw) {
		return nil, nil
	}
	if err := decode("network configuration", "ipam.", raw, &wire); err != nil {
		return nil, err
	}
	if _, err := cleanPath("ipam.stateDir", wire.StateDir); err != nil {
		return nil, err
	}
	return sniffIPAM(raw), nil
}

// parseIPAM reads the section and adds the ranges that the runtime passed. An
// empty section is none. ours says that it is ours whatever its type is; else
// a section of another type is kept raw and not looked into.
func parseIPAM(raw json.RawMessage, extra [][]wireRange, ours bool) (*IPAMConfig, *Error) {
	if isNull(raw) {
		return nil, nil
	}
	var wire wireIPAM
	err := decode("network configuration", "ipam.", raw, &wire)
	if err != nil && (!isTypeError(err) || ours || wire.Type == "" || wire.Type == BuiltinIPAM) {
		return nil, err
	}
	if wire.Type == "" && !ours {
		if asksNothing(raw) {
			return nil, nil
		}
		return nil, Errorf(CodeConfig, "ipam.type is missing: want %q, or the name of another address plugin", BuiltinIPAM)
	}
	cfg := &IPAMConfig{Type: wire.Type, Raw: raw, Cooldown: DefaultCooldown}
	if !ours && !cfg.Builtin() {
		return cfg, nil
	}
	return cfg, cfg.fill(&wire, extra)
}

// fill reads the keys of a section that is ours.
func (c *IPAMConfig) fill(wire *wireIPAM, extra [][]wireRange) (err *Error) {
	if c.Pool, err = parsePool(wire, extra); err != nil {
		return err
	}
	for i, w := range wire.Routes {
		route, err := parseConfiguredRoute(index("ipam.routes", i), w)
		if err != nil {
			return err
		}
		c.Routes = append(c.Routes, route)
	}
	c.DNS = wire.DNS
	for _, p := range []struct {
		key, value string
		into       *string
	}{
		{"ipam.stateDir", wire.StateDir, &c.StateDir},
		{"ipam.dataDir", wire.DataDir, &c.DataDir},
		{"ipam.resolvConf", wire.ResolvConf, &c.ResolvConf},
	} {
		if *p.into, err = cleanPath(p.key, p.value); err != nil {
			return err
		}
	}
	c.Cooldown, err = parseCooldown(wire.Cooldown)
	return err
}

// parsePool collects the sets in the order of host-local: the single range of
// old configurations, the list, the runtime's. What they must satisfy together
// is for package ipam to say.
func parsePool(wire *wireIPAM, extra [][]wireRange) (ipam.Pool, *Error) {
	var sets []ipam.Set
	if wire.Subnet != "" || wire.RangeStart != "" || wire.RangeEnd != "" {
		r, err := parseRange("ipam", wire.wireRange)
		if err != nil {
			return ipam.Pool{}, err
		}
		sets = append(sets, ipam.Set{r})
	}
	for _, source := range []struct {
		key  string
		list [][]wireRange
	}{{"ipam.ranges", wire.Ranges}, {"runtimeConfig.ipRanges", extra}} {
		for i, list := range source.list {
			set, err := parseSet(index(source.key, i), list)
			if err != nil {
				return ipam.Pool{}, err
			}
			sets = append(sets, set)
		}
	}
	pool, err := ipam.NewPool(sets)
	if err != nil {
		// The places in its message count all sources together.
		return ipam.Pool{}, Errorf(CodeConfig, "ipam: %w", err)
	}
	return pool, nil
}

func parseSet(key string, list []wireRange) (ipam.Set, *Error) {
	var set ipam.Set
	for i, w := range list {
		place := index(key, i)
		r, err := parseRange(place, w)
		if err != nil {
			return nil, err
		}
		if _, err := ipam.NewRange(r); err != nil {
			return nil, Errorf(CodeConfig, "%s: %w", place, err)
		}
		set = append(set, r)
	}
	return set, nil
}

func parseRange(key string, w wireRange) (r ipam.Range, err *Error) {
	if r.Subnet, err = parsePrefix(key+".subnet", w.Subnet); err != nil {
		return r, err
	}
	if r.First, err = parseAddrOrNone(key+".rangeStart", w.RangeStart); err != nil {
		return r, err
	}
	if r.Last, err = parseAddrOrNone(key+".rangeEnd", w.RangeEnd); err != nil {
		return r, err
	}
	if r.Gateway, err = parseAddrOrNone(key+".gateway", w.Gateway); err != nil {
		return r, err
	}
	for i, s := range w.Exclude {
		prefix, err := parseExclude(index(key+".exclude", i), s)
		if err != nil {
			return r, err
		}
		r.Exclude = append(r.Exclude, prefix)
	}
	return r, nil
}

// parseExclude also takes a bare address, for a block of one.
func parseExclude(key, s string) (netip.Prefix, *Error) {
	if strings.Contains(s, "/") {
		return parsePrefix(key, s)
	}
	addr, err := parseAddr(key, s)
	return netip.PrefixFrom(addr, addr.BitLen()), err
}

// parseConfiguredRoute reads a route of the configuration. Host bits in the
// destination are refused: the kernel would do so only at ADD, and what was
// meant is unclear.
func parseConfiguredRoute(key string, w wireRoute) (attach.Route, *Error) {
	r, err := parseRoute(key, w)
	if err != nil {
		return r, err
	}
	if r.Dst != r.Dst.Masked() {
		return r, Errorf(CodeConfig, "%s.dst %s: has host bits set; want %s", key, quote(w.Dst), r.Dst.Masked())
	}
	if r.Gateway.IsValid() && r.Gateway.Is4() != r.Dst.Addr().Is4() {
		return r, Errorf(CodeConfig, "%s.gw %s: is of another family than dst %s", key, r.Gateway, r.Dst)
	}
	for _, n := range []struct {
		key        string
		value, max int
	}{
		{"mtu", r.MTU, attach.MaxMTU}, {"advmss", r.AdvMSS, attach.MaxMTU}, {"priority", r.Priority, maxUint32},
		{"table", orZero(r.Table), maxUint32}, {"scope", orZero(r.Scope), 255},
	} {
		if n.value < 0 || n.value > n.max {
			return r, Errorf(CodeConfig, "%s.%s %d: want 0 to %d", key, n.key, n.value, n.max)
		}
	}
	return r, nil
}

const maxUint32 = 1<<32 - 1

func orZero(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// parseCooldown reads a number of seconds or a duration such as "1m30s".
func parseCooldown(raw json.RawMessage) (time.Duration, *Error) {
	if isNull(raw) {
		return DefaultCooldown, nil
	}
	var d time.Duration
	var text string
	if seconds, err := strconv.ParseUint(string(raw), 10, 32); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if json.Unmarshal(raw, &text) != nil {
		d = -1
	} else if d, err = time.ParseDuration(text); err != nil {
		d = -1
	}
	if d < 0 || d > MaxCooldown {
		return 0, Errorf(CodeConfig, "ipam.cooldown %s: want seconds or a duration such as \"30s\", at most %s",
			quote(string(raw)), MaxCooldown)
	}
	return d, nil
}
