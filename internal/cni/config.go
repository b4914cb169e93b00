// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"net/netip"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/ipam"
)

// Defaults and limits of the configuration.
const (
	DefaultStateDir = "/run/weft"
	DefaultTimeout  = 30 * time.Second
	MinTimeout      = time.Second
	MaxTimeout      = 600 * time.Second
	DefaultCooldown = 30 * time.Second
	MaxCooldown     = 24 * time.Hour
)

// RepeatReturn is the value of Config.RepeatAdd that makes a repeated ADD
// answer with the result of the first.
const RepeatReturn = "return"

// Config is the configuration of one plugin as the runtime passes it on
// standard input, with what capabilities and arguments change already applied.
type Config struct {
	CNIVersion string // a supported one; 0.1.0 where the input has none
	Name       string // of the network
	Type       string // the executable

	StateDir   string        // "stateDir": journal and lock; absolute, clean
	Socket     string        // "socket": the agent's; set: thick, empty: thin
	Timeout    time.Duration // "timeout" in seconds, 1 to 600: for the whole call
	OfflineAdd bool          // "offlineAdd": ADD without the agent when its socket is dead
	LogFile    string        // "logFile": empty for none
	RepeatAdd  string        // "repeatAdd": "" or RepeatReturn

	MTU         int             // "mtu" in bytes, 68 to 65535; 0: detect
	MAC         attach.MAC      // runtimeConfig.mac, args.cni.mac, CNI_ARGS MAC, "mac", the first that is there
	IPMasq      bool            // "ipMasq", true where it is missing
	Sysctl      []attach.Sysctl // "sysctl", sorted by key; IFNAME replaced
	SysctlAllow []string        // "sysctlAllow", or the default list
	DNS         DNS             // "dns", overridden by runtimeConfig.dns
	Ports       []attach.Port   // runtimeConfig.portMappings
	Limits      attach.Limits   // runtimeConfig.bandwidth

	IPAM *IPAMConfig  // nil: none
	Want []netip.Addr // addresses asked for: see wanted; in thick mode there is no IPAM to hold them
	Args Args         // CNI_ARGS

	PrevResult       *Result          // nil: none
	ValidAttachments ValidAttachments // GC only
}

// Thick reports whether the node agent serves this network.
func (c *Config) Thick() bool { return c.Socket != "" }

// IPAMConfig is the "ipam" section. Everything below Raw is read only where
// the section is ours; another plugin's keys may have any shape.
type IPAMConfig struct {
	Type string
	Raw  json.RawMessage // the section as it came, for a delegated plugin

	Pool       ipam.Pool      // "ranges" and host-local's single range, then runtimeConfig.ipRanges
	Routes     []attach.Route // "routes"
	DNS        DNS            // "dns"
	StateDir   string         // "stateDir"; in weft-cni that of the plugin
	DataDir    string         // "dataDir": where host-local kept its reservations
	ResolvConf string         // "resolvConf"
	Cooldown   time.Duration  // "cooldown": how long a released address rests
	Want       []netip.Addr   // as Config.Want
}

// BuiltinIPAM is the type of the address management that weft-cni does itself.
const BuiltinIPAM = "weft-ipam"

// Builtin reports whether weft-cni manages the addresses itself.
func (c *IPAMConfig) Builtin() bool { return c != nil && c.Type == BuiltinIPAM }

// DNS is the "dns" dictionary of configurations and results.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// IsZero reports whether the dictionary says nothing.
func (d DNS) IsZero() bool {
	return len(d.Nameservers) == 0 && d.Domain == "" && len(d.Search) == 0 && len(d.Options) == 0
}

// Attachment is one entry of the list of valid attachments.
type Attachment struct {
	ContainerID string `json:"containerID"`
	Ifname      string `json:"ifname"`
}

// ValidAttachments is the runtime's word, at GC, on what is still in use.
//
// Present false and an empty List differ: the first says nothing about any
// attachment, so only what has evidently lost its sandbox may be collected; the
// second says that nothing is in use. A null list counts as not present.
// ocicni passes null for a network without pods, which would mean "empty", but
// the same null comes from a runtime whose list was never filled, and the two
// mistakes do not weigh the same: leaving garbage for the next evidence, or
// cutting off a running pod.
type ValidAttachments struct {
	Present bool
	List    []Attachment
}
