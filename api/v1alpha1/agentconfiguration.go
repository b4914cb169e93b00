// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/topology"
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

	// NodeName names this node's Node object; with Cluster only.
	// Default: the environment's NODE_NAME, or else the host name, in lower case.
	NodeName string `json:"nodeName,omitempty"`
	// Cluster says where the cluster's state is kept. Without it this is a
	// node of its own, with the addresses of Network.Ranges.
	Cluster *ClusterConfiguration `json:"cluster,omitempty"`

	Network NetworkConfiguration `json:"network,omitempty"`
	GC      GCConfiguration      `json:"gc,omitempty"`
	Log     LogConfiguration     `json:"log,omitempty"`

	// CNI says where the runtime's configuration of this network is written
	// once pods can be attached. Without it the agent writes none.
	CNI *CNIConfiguration `json:"cni,omitempty"`
	// Listen is the address on which the agent answers /metrics, /healthz and
	// /readyz by HTTP, such as ":9119". Without it the agent answers nobody.
	Listen string `json:"listen,omitempty"`
	// Tracing exports how each pod got its network. Without it nothing is exported.
	Tracing *TracingConfiguration `json:"tracing,omitempty"`
}

// CNIConfiguration says what the runtime is told.
type CNIConfiguration struct {
	// ConfFile is the network configuration list that the agent writes, as the
	// agent sees it. Of the files in the directory the runtime takes the first by
	// name. Default: /etc/cni/net.d/10-weft.conflist.
	ConfFile string `json:"confFile,omitempty"`
	// NetworkName is the name of the network in it. Default: weft.
	NetworkName string `json:"networkName,omitempty"`
	// Socket is the agent's, as weft-cni sees it on the host. Default: Socket.
	Socket string `json:"socket,omitempty"`
	// StateDir is the agent's, as weft-cni sees it on the host. Default: StateDir.
	StateDir string `json:"stateDir,omitempty"`
	// LogFile is what weft-cni writes a line per call to. Default: none.
	LogFile string `json:"logFile,omitempty"`
}

// TracingConfiguration says where traces go.
type TracingConfiguration struct {
	// Endpoint takes OTLP over HTTP: the URL of a collector, such as
	// http://collector.observability:4318.
	Endpoint string `json:"endpoint"`
}

// KubernetesConfiguration says how the API server is reached.
type KubernetesConfiguration struct {
	// Kubeconfig is a file with server and credentials. Default: the service
	// account of the pod that the agent runs in.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Server is the URL of the API server, instead of what Kubeconfig or the
	// pod's environment says: an agent that does not go through the Service
	// needs no kube-proxy to start.
	Server string `json:"server,omitempty"`
}

// ClusterConfiguration says where the cluster's state is kept.
type ClusterConfiguration struct {
	// Directory holds Kubernetes manifests: Nodes, IPPools, and the
	// SubnetLeases that the nodes write. An absolute path. Either this or
	// Kubernetes.
	Directory string `json:"directory,omitempty"`
	// Kubernetes: the state is in the Kubernetes API.
	Kubernetes *KubernetesConfiguration `json:"kubernetes,omitempty"`
	// InitialPool is created, as IPPool "default", by whichever agent finds that
	// the Kubernetes API has no IPPool at all: one manifest can install
	// everything then. Afterwards the IPPool counts, and this is not looked at.
	InitialPool *IPPoolSpec `json:"initialPool,omitempty"`
	// LeaseIdleAfter: a block that a node took in addition and that no pod has
	// an address of is given back after this time, 1s to 24h. Default: 10m.
	LeaseIdleAfter *Duration `json:"leaseIdleAfter,omitempty"`
}

// NetworkConfiguration describes the pod network of this node.
type NetworkConfiguration struct {
	// Ranges: an attachment gets one address of every set; a set is a list of
	// ranges of one family, tried in order. At least one set; with a cluster
	// none, because the node's leases say the ranges.
	Ranges [][]RangeConfiguration `json:"ranges,omitempty"`
	// Backend says how packets travel between nodes.
	Backend BackendConfiguration `json:"backend,omitempty"`
	// NodeAddresses are this node's addresses on the network between the
	// nodes, at most one per family. Default: those of its Node object, or
	// else those of the interface of the default route.
	NodeAddresses []netip.Addr `json:"nodeAddresses,omitempty"`
	// Routes inside the sandbox. Default: the default route of each family
	// that the node has ranges of.
	Routes []attach.Route `json:"routes,omitempty"`
	// MTU of pod interfaces in bytes, 68 to 65535 (at least 1280 with IPv6).
	// Default: that of the node's uplink, minus what VXLAN takes where packets
	// may travel by VXLAN: 50 bytes over IPv4, 70 over IPv6.
	MTU int `json:"mtu,omitempty"`
	// Masquerade what leaves the ranges (with a cluster: the pools) behind the
	// node's address. Default: true; with a cluster a pool can say no.
	Masquerade *bool `json:"masquerade,omitempty"`
	// MasqueradeExclude are further destinations that see the pod's own address.
	MasqueradeExclude []netip.Prefix `json:"masqueradeExclude,omitempty"`
	// Cooldown is how long a released address is kept back while others are
	// free. Default: 30s.
	Cooldown *Duration `json:"cooldown,omitempty"`
}

// BackendConfiguration says how packets travel between nodes. It should be the
// same on all nodes; while it is being changed, those that have changed and
// those that have not reach each other natively where they can.
type BackendConfiguration struct {
	// Type is auto (default), vxlan or native. See topology.Backend.
	Type topology.Backend `json:"type,omitempty"`
	// VNI is the VXLAN network identifier, 1 to 16777215. Default: 119.
	VNI int `json:"vni,omitempty"`
	// Port is the UDP port of VXLAN. Default: 4789.
	Port int `json:"port,omitempty"`
	// ChecksumOffload of VXLAN devices: auto (default: off on kernels before
	// 5.7, which corrupt checksums), on or off.
	ChecksumOffload string `json:"checksumOffload,omitempty"`
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
	DefaultVNI        = 119
	DefaultVXLANPort  = 4789 // IANA's, RFC 7348
	DefaultLeaseIdle  = 10 * time.Minute
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
	if c.Cluster != nil {
		c.setClusterDefaults()
	}
	c.CNI.setDefaults(c)
	n := &c.Network
	n.Backend.setDefaults()
	if n.Masquerade == nil {
		yes := true
		n.Masquerade = &yes
	}
	if n.Cooldown == nil {
		d := Duration(DefaultCooldown)
		n.Cooldown = &d
	}
	if n.Routes == nil && c.Cluster == nil {
		if pool, err := n.Pool(); err == nil {
			n.Routes = DefaultRoutes(pool)
		}
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

func (c *AgentConfiguration) setClusterDefaults() {
	if c.NodeName == "" {
		host, _ := os.Hostname()
		c.NodeName = cmp.Or(os.Getenv("NODE_NAME"), strings.ToLower(host))
	}
	if c.Cluster.LeaseIdleAfter == nil {
		d := Duration(DefaultLeaseIdle)
		c.Cluster.LeaseIdleAfter = &d
	}
}

// Defaults of CNIConfiguration.
const (
	DefaultConfFile    = "/etc/cni/net.d/10-weft.conflist"
	DefaultNetworkName = "weft"
)

func (n *CNIConfiguration) setDefaults(c *AgentConfiguration) {
	if n == nil {
		return
	}
	n.ConfFile = cmp.Or(n.ConfFile, DefaultConfFile)
	n.NetworkName = cmp.Or(n.NetworkName, DefaultNetworkName)
	n.Socket = cmp.Or(n.Socket, c.Socket)
	n.StateDir = cmp.Or(n.StateDir, c.StateDir)
}

func (b *BackendConfiguration) setDefaults() {
	if b.Type == "" {
		b.Type = topology.Auto
	}
	if b.VNI == 0 {
		b.VNI = DefaultVNI
	}
	if b.Port == 0 {
		b.Port = DefaultVXLANPort
	}
	if b.ChecksumOffload == "" {
		b.ChecksumOffload = "auto"
	}
}

// DefaultRoutes returns the default route of each family that the pool has.
func DefaultRoutes(pool ipam.Pool) []attach.Route {
	var v4, v6 bool
	for _, subnet := range pool.Subnets() {
		v4 = v4 || subnet.Addr().Is4()
		v6 = v6 || subnet.Addr().Is6()
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
