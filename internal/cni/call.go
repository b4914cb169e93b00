// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"path"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

// Verbs of the specification: the values of CNI_COMMAND.
const (
	Add     = "ADD"
	Del     = "DEL"
	Check   = "CHECK"
	GC      = "GC"
	Status  = "STATUS"
	Version = "VERSION"
)

// Call is one invocation of a plugin: the environment and standard input.
type Call struct {
	Command       string // CNI_COMMAND
	ContainerID   string // CNI_CONTAINERID
	Netns         string // CNI_NETNS; at DEL it may be empty, gone, or another namespace
	Ifname        string // CNI_IFNAME
	Args          string // CNI_ARGS
	Path          string // CNI_PATH, needed only to delegate
	NetnsOverride bool   // CNI_NETNS_OVERRIDE: CNI_NETNS may be the plugin's own namespace
	Stdin         []byte
}

// CallFromEnv reads the environment. It validates nothing: see Check.
func CallFromEnv(getenv func(string) string, stdin []byte) Call {
	override := getenv("CNI_NETNS_OVERRIDE")
	return Call{
		Command:       getenv("CNI_COMMAND"),
		ContainerID:   getenv("CNI_CONTAINERID"),
		Netns:         getenv("CNI_NETNS"),
		Ifname:        getenv("CNI_IFNAME"),
		Args:          getenv("CNI_ARGS"),
		Path:          getenv("CNI_PATH"),
		NetnsOverride: override == "1" || strings.EqualFold(override, "true"),
		Stdin:         stdin,
	}
}

// Env returns the call as environment variables, for a delegated plugin. All
// variables of the specification are there, empty or not, so that none of our
// own environment shines through.
func (c Call) Env() []string {
	env := []string{
		"CNI_COMMAND=" + c.Command,
		"CNI_CONTAINERID=" + c.ContainerID,
		"CNI_NETNS=" + c.Netns,
		"CNI_IFNAME=" + c.Ifname,
		"CNI_ARGS=" + c.Args,
		"CNI_PATH=" + c.Path,
	}
	if c.NetnsOverride {
		env = append(env, "CNI_NETNS_OVERRIDE=1")
	}
	return env
}

// Key names the attachment that the call is about.
func (c Call) Key(network string) attach.Key {
	return attach.Key{Network: network, ContainerID: c.ContainerID, Ifname: c.Ifname}
}

// Check validates the environment as far as the verb needs it; CodeEnvironment
// else, with every offending variable in one message. GC, STATUS and VERSION
// need none, and libcni sets them to empty strings.
func (c Call) Check() *Error {
	var faults []string
	fault := func(variable, value, reason string) {
		if reason != "" {
			faults = append(faults, variable+"="+quote(value)+": "+reason)
		}
	}
	switch c.Command {
	case Add, Check:
		fault("CNI_CONTAINERID", c.ContainerID, nameFault(c.ContainerID))
		fault("CNI_NETNS", c.Netns, netnsFault(c.Netns))
		fault("CNI_IFNAME", c.Ifname, ifnameFault(c.Ifname))
	case Del:
		fault("CNI_CONTAINERID", c.ContainerID, nameFault(c.ContainerID))
		fault("CNI_IFNAME", c.Ifname, ifnameFault(c.Ifname))
	case GC, Status, Version:
	default:
		fault("CNI_COMMAND", c.Command, "want ADD, DEL, CHECK, GC, STATUS or VERSION")
	}
	if faults == nil {
		return nil
	}
	return Errorf(CodeEnvironment, "invalid environment: %s", strings.Join(faults, "; "))
}

// netnsFault says why a path cannot name the sandbox's namespace. Whether it
// does is for the kernel to say; this is about what can be written down and
// understood by a later process with another working directory.
func netnsFault(netns string) string {
	switch {
	case netns == "":
		return "missing; want the absolute path of the sandbox's network namespace"
	case !path.IsAbs(netns):
		return "want an absolute path"
	case len(netns) > maxPath:
		return "longer than 4095 bytes"
	case !isField(netns):
		return "contains white space, a control character or invalid UTF-8"
	}
	return ""
}
