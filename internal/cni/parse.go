// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"path"
	"time"

	"weft.dev/weft/internal/core/attach"
)

// ParseConfig reads the configuration of weft-cni, as strictly as the verb
// wants it.
//
// ADD, CHECK and STATUS validate everything; CHECK needs a prevResult and
// version 0.4.0, STATUS and GC need 1.1.0 (CodeVersion below). GC reads the
// list of attachments strictly and what finds our state. DEL fails only where
// the input is not a JSON object, the name is not one or the version is not
// supported: any other field that is unknown, of the wrong type or no longer
// valid counts as missing.
func ParseConfig(call Call) (*Config, *Error) {
	var wire wirePlugin
	err := decode("network configuration", "", call.Stdin, &wire)
	cfg, err := begin(call, &wire.wireCommon, err)
	if err != nil {
		return nil, err
	}
	switch call.Command {
	case Del:
		readPlaceLeniently(cfg, &wire)
		cfg.IPAM = sniffIPAM(wire.IPAM)
		inheritStateDir(cfg)
		return cfg, nil
	case GC:
		if err := readPlace(cfg, &wire); err != nil {
			return nil, err
		}
		cfg.IPAM = sniffIPAM(wire.IPAM)
		inheritStateDir(cfg)
		return cfg, nil
	}
	return readAll(cfg, call, &wire)
}

// ParseIPAMCall reads the configuration of another plugin that delegates to
// weft-ipam: only "ipam" is ours, under whatever type it was called. Rules by
// verb are those of ParseConfig, except that CHECK works without prevResult:
// the plugins that delegate do not all pass one on.
func ParseIPAMCall(call Call) (*Config, *Error) {
	var wire wireCommon
	err := decode("network configuration", "", call.Stdin, &wire)
	cfg, err := begin(call, &wire, err)
	if err != nil {
		return nil, err
	}
	cfg.StateDir = DefaultStateDir
	cfg.Timeout = DefaultTimeout
	switch call.Command {
	case Del:
		cfg.IPAM = sniffIPAM(wire.IPAM)
		adoptStateDir(cfg)
		return cfg, nil
	case GC:
		if cfg.IPAM, err = sniffIPAMStrictly(wire.IPAM); err != nil {
			return nil, err
		}
		adoptStateDir(cfg)
		return cfg, nil
	}
	if err := readCallerWishes(cfg, call, &wire); err != nil {
		return nil, err
	}
	if cfg.IPAM, err = parseIPAM(wire.IPAM, wire.RuntimeConfig.IPRanges, true); err != nil {
		return nil, err
	}
	if cfg.IPAM == nil {
		return nil, Errorf(CodeConfig, "network %s: ipam is missing; want a section with ranges", quote(cfg.Name))
	}
	cfg.IPAM.Want = cfg.Want
	adoptStateDir(cfg)
	return cfg, nil
}

// begin reads what every verb needs and decides what a decoding error means:
// at DEL a value of the wrong type is forgiven.
func begin(call Call, wire *wireCommon, decoding *Error) (*Config, *Error) {
	lenient := call.Command == Del
	forgiven := lenient && decoding != nil && isTypeError(decoding)
	if decoding != nil && !forgiven {
		return nil, decoding
	}
	cfg := &Config{Type: wire.Type, CNIVersion: versionOrOldest(wire.CNIVersion), Name: wire.Name}
	if lenient {
		cfg.Args, _ = ParseArgs(call.Args) // only whom the attachment served, for the log
	}
	if err := checkSupported("cniVersion", cfg.CNIVersion); err != nil {
		return nil, err
	}
	if reason := nameFault(wire.Name); reason != "" {
		if decoding != nil {
			return nil, decoding // the name may be what was of the wrong type, or the whole input
		}
		return nil, Errorf(CodeConfig, "name %s: %s; want the name of the network", quote(wire.Name), reason)
	}
	if err := checkVerbVersion(call.Command, cfg.CNIVersion); err != nil {
		return nil, err
	}
	if err := readPrevResult(cfg, wire.PrevResult); err != nil && !lenient && call.Command != GC {
		return nil, err
	}
	if call.Command != GC {
		return cfg, nil
	}
	var err *Error
	cfg.ValidAttachments, err = validAttachments(wire)
	return cfg, err
}

// checkVerbVersion refuses a verb that the version of the request does not
// have; a runtime that follows the specification does not send it.
func checkVerbVersion(verb, version string) *Error {
	minimum := oldestVersion
	switch verb {
	case Check:
		minimum = checkVersion
	case GC, Status:
		minimum = gcVersion
	}
	if AtLeast(version, minimum) {
		return nil
	}
	return Errorf(CodeVersion, "cniVersion %s does not allow %s; it needs %s or newer", quote(version), verb, minimum)
}

func readPrevResult(cfg *Config, raw []byte) *Error {
	if isNull(raw) {
		return nil
	}
	prev, err := parseResult("prevResult", raw, cfg.CNIVersion)
	if err != nil {
		return err
	}
	cfg.PrevResult = &prev
	return nil
}

// validAttachments joins both spellings of the list. An entry without
// container id or interface would match nothing of ours, so a list in a dialect
// that we misread would condemn every attachment: it is refused.
func validAttachments(wire *wireCommon) (ValidAttachments, *Error) {
	valid := ValidAttachments{Present: wire.ValidAttachments != nil || wire.Attachments != nil}
	seen := make(map[Attachment]bool)
	for _, list := range [][]Attachment{wire.ValidAttachments, wire.Attachments} {
		for i, a := range list {
			if a.ContainerID == "" || a.Ifname == "" {
				return ValidAttachments{}, Errorf(CodeConfig,
					"%s: containerID %s, ifname %s: want both; nothing is collected by a list that cannot be read",
					index("cni.dev/valid-attachments", i), quote(a.ContainerID), quote(a.Ifname))
			}
			if !seen[a] {
				seen[a] = true
				valid.List = append(valid.List, a)
			}
		}
	}
	return valid, nil
}

// readPlace reads where the state is and how long the call may take.
func readPlace(cfg *Config, wire *wirePlugin) (err *Error) {
	if cfg.StateDir, err = cleanPath("stateDir", wire.StateDir); err != nil {
		return err
	}
	if cfg.Socket, err = cleanPath("socket", wire.Socket); err != nil {
		return err
	}
	if cfg.StateDir == "" {
		cfg.StateDir = defaultStateDir(cfg.Socket)
	}
	if len(cfg.Socket) > maxSocket {
		return Errorf(CodeConfig, "socket %s: longer than the %d bytes of a unix socket address", quote(cfg.Socket), maxSocket)
	}
	if cfg.LogFile, err = cleanPath("logFile", wire.LogFile); err != nil {
		return err
	}
	cfg.OfflineAdd = wire.OfflineAdd
	cfg.IPMasq = wire.IPMasq == nil || *wire.IPMasq
	cfg.Timeout, err = timeout(wire.Timeout)
	return err
}

// defaultStateDir is where the state is if the configuration does not say so.
// A thick plugin finds its agent's beside the socket, which is where the agent
// puts the socket unless it is told otherwise.
func defaultStateDir(socket string) string {
	if socket == "" {
		return DefaultStateDir
	}
	return path.Dir(socket)
}

func timeout(seconds *int) (time.Duration, *Error) {
	if seconds == nil {
		return DefaultTimeout, nil
	}
	// Compared in seconds: as a duration a large number would wrap around.
	if *seconds < int(MinTimeout/time.Second) || *seconds > int(MaxTimeout/time.Second) {
		return 0, Errorf(CodeConfig, "timeout %d: want %d to %d seconds", *seconds, MinTimeout/time.Second, MaxTimeout/time.Second)
	}
	return time.Duration(*seconds) * time.Second, nil
}

// readPlaceLeniently is readPlace for DEL: each field that cannot be used is
// replaced by its default. ADD would have refused it, so either no state was
// ever made under it or it comes from a release that knew it otherwise.
func readPlaceLeniently(cfg *Config, wire *wirePlugin) {
	if socket, err := cleanPath("socket", wire.Socket); err == nil && len(socket) <= maxSocket {
		cfg.Socket = socket
	}
	cfg.StateDir = defaultStateDir(cfg.Socket)
	if dir, err := cleanPath("stateDir", wire.StateDir); err == nil && dir != "" {
		cfg.StateDir = dir
	}
	if file, err := cleanPath("logFile", wire.LogFile); err == nil {
		cfg.LogFile = file
	}
	cfg.Timeout = DefaultTimeout
	if d, err := timeout(wire.Timeout); err == nil {
		cfg.Timeout = d
	}
	cfg.IPMasq = wire.IPMasq == nil || *wire.IPMasq
}

// readAll reads everything that ADD, CHECK and STATUS depend on.
func readAll(cfg *Config, call Call, wire *wirePlugin) (*Config, *Error) {
	steps := []func() *Error{
		func() *Error { return readPlace(cfg, wire) },
		func() *Error { return readCallerWishes(cfg, call, &wire.wireCommon) },
		func() *Error { return readLink(cfg, call, wire) },
		func() *Error { return readRuntime(cfg, wire) },
		func() *Error { return readAddressing(cfg, wire) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if call.Command == Check && cfg.PrevResult == nil {
		return nil, Errorf(CodeConfig, "network %s: CHECK needs prevResult, the result of ADD; it is missing", quote(cfg.Name))
	}
	return cfg, nil
}

// readLink reads the properties of the interface.
func readLink(cfg *Config, call Call, wire *wirePlugin) *Error {
	if wire.MTU != 0 && (wire.MTU < attach.MinMTU || wire.MTU > attach.MaxMTU) {
		return Errorf(CodeConfig, "mtu %d: want %d to %d bytes, or 0 to detect it", wire.MTU, attach.MinMTU, attach.MaxMTU)
	}
	cfg.MTU = wire.MTU
	if wire.RepeatAdd != "" && wire.RepeatAdd != RepeatReturn {
		return Errorf(CodeConfig, "repeatAdd %s: want %q or nothing", quote(wire.RepeatAdd), RepeatReturn)
	}
	cfg.RepeatAdd = wire.RepeatAdd
	mac, err := macOrNone("mac", wire.MAC)
	if err != nil {
		return err
	}
	if cfg.MAC.IsZero() {
		cfg.MAC = mac
	}
	cfg.DNS = wire.DNS
	cfg.SysctlAllow = wire.SysctlAllow
	if cfg.SysctlAllow == nil {
		cfg.SysctlAllow = DefaultSysctlAllow()
	}
	cfg.Sysctl, err = parseSysctls(wire.Sysctl, cfg.SysctlAllow, call.Ifname)
	return err
}

func macOrNone(key, s string) (attach.MAC, *Error) {
	if s == "" {
		return attach.MAC{}, nil
	}
	mac, ok := ParseMAC(s)
	if !ok {
		return attach.MAC{}, Errorf(CodeConfig, "%s %s: %s", key, quote(s), macRule)
	}
	return mac, nil
}
