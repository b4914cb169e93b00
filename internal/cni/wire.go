// SPDX-License-Identifier: Apache-2.0

package cni

import "encoding/json"

// The types of this file mirror the JSON. Their fields hold only what
// encoding/json decodes without calling back, never a type that unmarshals
// itself: a value of the wrong type then does not stop the decoder, so a
// lenient reader gets all the other fields from the same single pass.
// encoding/json matches keys without regard to case, which capability
// arguments need: go-cni sends them as "Servers" and "HostPort".

// wireCommon is what both programs read.
type wireCommon struct {
	CNIVersion    string          `json:"cniVersion"`
	Name          string          `json:"name"`
	Type          string          `json:"type"`
	IPAM          json.RawMessage `json:"ipam"`
	PrevResult    json.RawMessage `json:"prevResult"`
	Args          json.RawMessage `json:"args"`
	RuntimeConfig wireRuntime     `json:"runtimeConfig"`

	// libcni sends both keys with the same list; drafts of 1.1.0 had the second.
	ValidAttachments []Attachment `json:"cni.dev/valid-attachments"`
	Attachments      []Attachment `json:"cni.dev/attachments"`
}

// wirePlugin is what weft-cni reads.
type wirePlugin struct {
	wireCommon
	wireAttach
}

// wireAttach is what only weft-cni has. weft-ipam is called with another
// plugin's configuration, whose "mtu" or "mac" may be of any type.
type wireAttach struct {
	StateDir    string            `json:"stateDir"`
	Socket      string            `json:"socket"`
	Timeout     *int              `json:"timeout"`
	OfflineAdd  bool              `json:"offlineAdd"`
	LogFile     string            `json:"logFile"`
	RepeatAdd   string            `json:"repeatAdd"`
	MTU         int               `json:"mtu"`
	MAC         string            `json:"mac"`
	IPMasq      *bool             `json:"ipMasq"`
	Sysctl      map[string]string `json:"sysctl"`
	SysctlAllow []string          `json:"sysctlAllow"`
	DNS         DNS               `json:"dns"`
}

// wireRuntime is "runtimeConfig": the capabilities of CONVENTIONS.md. A
// capability that we do not know is ignored: the plugin cannot have asked for
// it in a way that it understands.
type wireRuntime struct {
	IPs      []string        `json:"ips"`
	IPRanges [][]wireRange   `json:"ipRanges"`
	MAC      json.RawMessage `json:"mac"`
	DNS      json.RawMessage `json:"dns"`

	PortMappings   json.RawMessage `json:"portMappings"`
	Bandwidth      json.RawMessage `json:"bandwidth"`
	InfinibandGUID json.RawMessage `json:"infinibandGUID"`
	DeviceID       json.RawMessage `json:"deviceID"`
	Aliases        json.RawMessage `json:"aliases"`
	CgroupPath     json.RawMessage `json:"cgroupPath"`
}

// wireArgs is "args", of which only the section "cni" is agreed upon.
type wireArgs struct {
	CNI struct {
		IPs []string `json:"ips"`
		MAC string   `json:"mac"`
	} `json:"cni"`
}

// wireIPAM is the "ipam" section with the keys of host-local.
type wireIPAM struct {
	Type       string          `json:"type"`
	Ranges     [][]wireRange   `json:"ranges"`
	Routes     []wireRoute     `json:"routes"`
	DNS        DNS             `json:"dns"`
	StateDir   string          `json:"stateDir"`
	DataDir    string          `json:"dataDir"`
	ResolvConf string          `json:"resolvConf"`
	Cooldown   json.RawMessage `json:"cooldown"`
	wireRange                  // one range without a list: host-local before 0.7
}

type wireRange struct {
	Subnet     string   `json:"subnet"`
	RangeStart string   `json:"rangeStart"`
	RangeEnd   string   `json:"rangeEnd"`
	Gateway    string   `json:"gateway"`
	Exclude    []string `json:"exclude"`
}

// wireRoute is a route in a configuration and in a result.
type wireRoute struct {
	Dst      string `json:"dst"`
	GW       string `json:"gw,omitempty"`
	MTU      int    `json:"mtu,omitempty"`
	AdvMSS   int    `json:"advmss,omitempty"`
	Priority int    `json:"priority,omitempty"`
	Table    *int   `json:"table,omitempty"`
	Scope    *int   `json:"scope,omitempty"`
}

// isNull reports a member that is absent or null.
func isNull(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == "null"
}
