// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"strings"
)

// readCallerWishes reads what one call asks for beside the configuration:
// CNI_ARGS, "args" and runtimeConfig.ips. The precedence is that of
// CONVENTIONS.md: a capability before args before CNI_ARGS. Only the highest
// source that is there counts; they are never mixed.
func readCallerWishes(cfg *Config, call Call, wire *wireCommon) (err *Error) {
	if call.Command == Status {
		return nil // it is about the network, not about one attachment
	}
	if cfg.Args, err = ParseArgs(call.Args); err != nil {
		return err
	}
	var args wireArgs
	if err := decodeArgs(wire.Args, &args); err != nil {
		return err
	}
	cfg.MAC = cfg.Args.MAC
	if args.CNI.MAC != "" {
		if cfg.MAC, err = macOrNone("args.cni.mac", args.CNI.MAC); err != nil {
			return err
		}
	}
	cfg.Want = cfg.Args.IPs
	switch {
	case len(wire.RuntimeConfig.IPs) > 0:
		cfg.Want, err = parseWantedList("runtimeConfig.ips", wire.RuntimeConfig.IPs)
	case len(args.CNI.IPs) > 0:
		cfg.Want, err = parseWantedList("args.cni.ips", args.CNI.IPs)
	}
	return err
}

// decodeArgs reads "args". What is in it is optional and may be ignored, so a
// shape that is not the agreed one means nothing to us; but under the keys that
// we do understand a value that cannot be followed is refused, because giving
// a pod another address than it asked for is worse than an error.
func decodeArgs(raw json.RawMessage, args *wireArgs) *Error {
	if isNull(raw) {
		return nil
	}
	var shape struct {
		CNI json.RawMessage `json:"cni"`
	}
	if json.Unmarshal(raw, &shape) != nil || !strings.HasPrefix(string(shape.CNI), "{") {
		return nil
	}
	return decode("network configuration", "args.cni.", shape.CNI, &args.CNI)
}

// readRuntime applies the capability arguments that are about the interface,
// and refuses those that we cannot act on: CONVENTIONS.md leaves no third way.
func readRuntime(cfg *Config, wire *wirePlugin) *Error {
	rc := &wire.RuntimeConfig
	refused := []struct {
		key string
		raw json.RawMessage
	}{
		{"infinibandGUID", rc.InfinibandGUID},
		{"deviceID", rc.DeviceID},
		{"aliases", rc.Aliases},
		{"cgroupPath", rc.CgroupPath},
	}
	for _, r := range refused {
		if !asksNothing(r.raw) {
			return Errorf(CodeUnsupportedField,
				"runtimeConfig.%s: weft-cni does not implement this capability and was passed %s; remove %q from its capabilities",
				r.key, oneLine(r.raw), r.key)
		}
	}
	if err := readRuntimePorts(cfg, rc.PortMappings); err != nil {
		return err
	}
	if err := readRuntimeBandwidth(cfg, rc.Bandwidth); err != nil {
		return err
	}
	if err := readRuntimeMAC(cfg, rc.MAC); err != nil {
		return err
	}
	return readRuntimeDNS(cfg, rc.DNS)
}

// oneLine is JSON without the white space between its tokens, cut to a length
// that a message can bear: the specification wants the value in it.
func oneLine(raw json.RawMessage) string {
	const most = 1024
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return quote(string(raw))
	}
	if b.Len() > most {
		return strings.ToValidUTF8(string(b.Bytes()[:most]), "") + "..."
	}
	return b.String()
}

func readRuntimeMAC(cfg *Config, raw json.RawMessage) *Error {
	var s string
	if isNull(raw) {
		return nil
	}
	if err := decode("network configuration", "runtimeConfig.mac", raw, &s); err != nil {
		return err
	}
	mac, err := macOrNone("runtimeConfig.mac", s)
	if err == nil && !mac.IsZero() {
		cfg.MAC = mac
	}
	return err
}

// readRuntimeDNS replaces the lists that the runtime gives. The capability has
// other key names than the configuration and no domain.
func readRuntimeDNS(cfg *Config, raw json.RawMessage) *Error {
	if isNull(raw) {
		return nil
	}
	var dns struct {
		Servers  []string `json:"servers"`
		Searches []string `json:"searches"`
		Options  []string `json:"options"`
	}
	if err := decode("network configuration", "runtimeConfig.dns.", raw, &dns); err != nil {
		return err
	}
	if len(dns.Servers) > 0 {
		cfg.DNS.Nameservers = dns.Servers
	}
	if len(dns.Searches) > 0 {
		cfg.DNS.Search = dns.Searches
	}
	if len(dns.Options) > 0 {
		cfg.DNS.Options = dns.Options
	}
	return nil
}

// asksNothing reports a capability argument without content: absent, null,
// zero, empty, or a list or object of nothing else. Runtimes send those for
// pods without the annotation in question, and ignoring them is acting on them.
func asksNothing(raw json.RawMessage) bool {
	if isNull(raw) {
		return true
	}
	var value any
	return json.Unmarshal(raw, &value) == nil && isEmpty(value)
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case float64:
		return v == 0
	case bool:
		return !v
	case []any:
		for _, element := range v {
			if !isEmpty(element) {
				return false
			}
		}
	case map[string]any:
		for _, member := range v {
			if !isEmpty(member) {
				return false
			}
		}
	}
	return true
}
