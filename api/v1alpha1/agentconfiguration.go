// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/ipam"
)

// AgentConfigurationKind is the kind of the agent's configuration file.
const AgentConfigurationKind = "AgentConfiguration"

// AgentConfiguration is what `weft agent --config FILE` reads.
type AgentConfiguration struct {
	APIVersion string `json:"apiVersion"` // weft.dev/v1alpha1
	Kind       string `json:"kind"`       // AgentConfiguration

	// StateDir is where the journal lives; absolute, no white space.
	// Default: /run/weft.
	StateDir string `json:"stateDir,omitempty"`
	// Socket is what weft-cni connects to; created with mode 0600.
	// Default: agent.sock in StateDir.
	Socket string `json:"socket,omitempty"`

	Network NetworkConfiguration `json:"network"`
	GC      GCConfiguration      `json:"gc,omitempty"`
	Log     LogConfiguration     `json:"log,omitempty"`
}

// NetworkConfiguration describes the pod network of this node.
type NetworkConfiguration struct {
	// Ranges: an attachment gets one address of every set; a set is a list of
	// ranges of one family, tried in order. At least one set.
	Ranges [][]RangeConfiguration `json:"ranges"`
	// Routes inside the sandbox. Default: the default route of each family
	// that Ranges have.
	Routes []attach.Route `json:"routes,omitempty"`
	// MTU of pod interfaces in bytes, 68 to 65535 (at least 1280 with IPv6).
	// Default: that of the node's uplink, looked up at each ADD.
	MTU int `json:"mtu,omitempty"`
	// Masquerade what leaves the ranges behind the node's address. Default: true.
	Masquerade *bool `json:"masquerade,omitempty"`
	// Cooldown is how long a released address is kept back while others are
	// free. Default: 30s.
	Cooldown *Duration `json:"cooldown,omitempty"`
}

// RangeConfiguration is one range of addresses, in the words of host-local.
type RangeConfiguration struct {
	Subnet     netip.Prefix   `json:"subnet"`
	RangeStart netip.Addr     `json:"rangeStart,omitzero"`
	RangeEnd   netip.Addr     `json:"rangeEnd,omitzero"`
	Gateway    netip.Addr     `json:"gateway,omitzero"`
	Exclude    []netip.Prefix `json:"exclude,omitempty"`
}

// GCConfiguration says how often the node is searched for leaks.
type GCConfiguration struct {
	// Interval between two passes, 1s to 1h. Default: 1m.
	Interval *Duration `json:"interval,omitempty"`
}

// LogConfiguration says what the agent writes to standard error.
type LogConfiguration struct {
	Level  string `json:"level,omitempty"`  // debug, info (default), warn, error
	Format string `json:"format,omitempty"` // text (default), json
}

// Duration is a time span written as in Go: "90s", "5m".
type Duration time.Duration

// UnmarshalJSON parses the string form.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("duration %s: want a string such as \"30s\"", raw)
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration %q: want a number and a unit, such as \"30s\" or \"5m\"", s)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes the string form.
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// Defaults of the agent's configuration.
const (
	DefaultStateDir   = "/run/weft"
	DefaultSocketName = "agent.sock"
	DefaultCooldown   = 30 * time.Second
	DefaultGCInterval = time.Minute
)

// ParseAgentConfiguration decodes strictly (an unknown or repeated key is an
// error), applies defaults and validates. The error lists everything that is
// wrong.
func ParseAgentConfiguration(raw []byte) (AgentConfiguration, error) {
	var c AgentConfiguration
	asJSON, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return c, fmt.Errorf("parse YAML: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(asJSON))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return c, fmt.Errorf("decode %s: %w", AgentConfigurationKind, err)
	}
	c.setDefaults()
	return c, c.validate()
}

func (c *AgentConfiguration) setDefaults() {
	if c.StateDir == "" {
		c.StateDir = DefaultStateDir
	}
	// The directory's name is part of the mark on every interface, so there
	// must be one way to write it.
	c.StateDir = filepath.Clean(c.StateDir)
	if c.Socket == "" {
		c.Socket = filepath.Join(c.StateDir, DefaultSocketName)
	}
	c.Socket = filepath.Clean(c.Socket)
	n := &c.Network
	if n.Masquerade == nil {
		yes := true
		n.Masquerade = &yes
	}
	if n.Cooldown == nil {
		d := Duration(DefaultCooldown)
		n.Cooldown = &d
	}
	if n.Routes == nil {
		n.Routes = n.defaultRoutes()
	}
	if c.GC.Interval == nil {
		d := Duration(DefaultGCInterval)
		c.GC.Interval = &d
	}
	if c.Log.Level == "" {
		c.Log.Level = "info"
	}
	if c.Log.Format == "" {
		c.Log.Format = "text"
	}
}

func (n NetworkConfiguration) defaultRoutes() []attach.Route {
	var v4, v6 bool
	for _, set := range n.Ranges {
		for _, r := range set {
			v4 = v4 || r.Subnet.Addr().Is4()
			v6 = v6 || r.Subnet.Addr().Is6()
		}
	}
	var routes []attach.Route
	if v4 {
		routes = append(routes, attach.Route{Dst: netip.PrefixFrom(netip.IPv4Unspecified(), 0)})
	}
	if v6 {
		routes = append(routes, attach.Route{Dst: netip.PrefixFrom(netip.IPv6Unspecified(), 0)})
	}
	return routes
}

func (c *AgentConfiguration) validate() error {
	var errs []error
	reject := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
	if c.APIVersion != APIVersion {
		reject("apiVersion", "is %q, want %q", c.APIVersion, APIVersion)
	}
	if c.Kind != AgentConfigurationKind {
		reject("kind", "is %q, want %q", c.Kind, AgentConfigurationKind)
	}
	for field, path := range map[string]string{"stateDir": c.StateDir, "socket": c.Socket} {
		if !filepath.IsAbs(path) || strings.ContainsAny(path, " \t\n") {
			reject(field, "%q: want an absolute path without white space", path)
		}
	}
	// sun_path of sockaddr_un holds 108 bytes with the terminating zero (unix(7)).
	if len(c.Socket) > 107 {
		reject("socket", "%q has %d bytes, a unix socket's path at most 107", c.Socket, len(c.Socket))
	}
	if pool, err := c.Network.Pool(); err != nil {
		reject("network.ranges", "%s", err)
	} else if err := c.Network.rehearse(pool); err != nil {
		reject("network", "no pod could be attached: %s", err)
	}
	if d := time.Duration(*c.Network.Cooldown); d < 0 || d > 24*time.Hour {
		reject("network.cooldown", "is %s, want 0s to 24h", d)
	}
	if d := time.Duration(*c.GC.Interval); d < time.Second || d > time.Hour {
		reject("gc.interval", "is %s, want 1s to 1h", d)
	}
	if !strings.Contains(" debug info warn error ", " "+c.Log.Level+" ") {
		reject("log.level", "is %q, want debug, info, warn or error", c.Log.Level)
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		reject("log.format", "is %q, want text or json", c.Log.Format)
	}
	return errors.Join(errs...)
}

// rehearse plans an attachment with the first address of each set: what would
// fail every ADD shall fail the start of the agent.
func (n NetworkConfiguration) rehearse(pool ipam.Pool) error {
	for i, r := range n.Routes {
		if err := r.Validate(); err != nil {
			return fmt.Errorf("routes[%d]: %w", i, err)
		}
	}
	spec := attach.Spec{Key: attach.Key{Network: "any", ContainerID: "any", Ifname: "eth0"}, MTU: n.MTU, Routes: n.Routes}
	if spec.MTU == 0 {
		spec.MTU = attach.MinMTU6
	}
	for _, set := range pool.Sets {
		r := set[0]
		spec.Addresses = append(spec.Addresses, attach.Address{Addr: r.First, Subnet: r.Subnet, Gateway: r.Gateway})
	}
	_, err := attach.NewPlan(spec)
	return err
}

// Pool returns the ranges as the allocator wants them.
func (n NetworkConfiguration) Pool() (ipam.Pool, error) {
	var sets []ipam.Set
	for i, set := range n.Ranges {
		var ranges ipam.Set
		for j, rc := range set {
			r, err := ipam.NewRange(ipam.Range{
				Subnet: rc.Subnet, First: rc.RangeStart, Last: rc.RangeEnd, Gateway: rc.Gateway, Exclude: rc.Exclude,
			})
			if err != nil {
				return ipam.Pool{}, fmt.Errorf("set %d, range %d: %w", i, j, err)
			}
			ranges = append(ranges, r)
		}
		sets = append(sets, ranges)
	}
	return ipam.NewPool(sets)
}
