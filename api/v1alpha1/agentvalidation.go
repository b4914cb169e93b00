// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/topology"
)

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
	c.validateCluster(reject)
	c.validateServices(reject)
	c.Network.validate(reject)
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

// validateServices checks what the agent does for others than pods.
func (c *AgentConfiguration) validateServices(reject rejector) {
	if c.Listen != "" {
		if _, port, err := net.SplitHostPort(c.Listen); err != nil || port == "" {
			reject("listen", "%q: want an address and a port, such as 127.0.0.1:9119 or :9119", c.Listen)
		}
	}
	if c.Tracing != nil {
		validateURL(reject, "tracing.endpoint", c.Tracing.Endpoint)
	}
	if c.CNI == nil {
		return
	}
	for field, path := range map[string]string{
		"cni.confFile": c.CNI.ConfFile, "cni.socket": c.CNI.Socket, "cni.stateDir": c.CNI.StateDir, "cni.logFile": c.CNI.LogFile,
	} {
		if path != "" && !filepath.IsAbs(path) {
			reject(field, "%q: want an absolute path", path)
		}
	}
	if ext := filepath.Ext(c.CNI.ConfFile); ext != ".conflist" {
		reject("cni.confFile", "%q: want a name that ends in .conflist, or no runtime reads it", c.CNI.ConfFile)
	}
	if !networkName.MatchString(c.CNI.NetworkName) {
		reject("cni.networkName", "%q: want letters, digits, '_', '.' and '-', a letter or digit first", c.CNI.NetworkName)
	}
}

// networkName is what the CNI specification allows (section 1).
var networkName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)

func validateURL(reject rejector, field, text string) {
	if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		reject(field, "%q: want a URL such as https://198.18.0.1:6443", text)
	}
}

type rejector func(field, format string, args ...any)

// validateCluster checks where the node's addresses come from: from a cluster
// or from ranges, not from both.
func (c *AgentConfiguration) validateCluster(reject rejector) {
	if c.Cluster == nil {
		if c.NodeName != "" {
			reject("nodeName", "is %q, but there is no cluster; remove it, or set cluster", c.NodeName)
		}
		if pool, err := c.Network.Pool(); err != nil {
			reject("network.ranges", "%s", err)
		} else if err := c.Network.rehearse(pool); err != nil {
			reject("network", "no pod could be attached: %s", err)
		}
		return
	}
	if !nodeName.MatchString(c.NodeName) || len(c.NodeName) > 253 {
		reject("nodeName", "%q: want the name of a Node: at most 253 of a-z, 0-9, '-' and '.', a letter or digit at both ends", c.NodeName)
	}
	if env := os.Getenv("NODE_NAME"); env != "" && c.NodeName != env {
		reject("nodeName", "is %q, but this is node %q by the environment's NODE_NAME, and two nodes of one name give the same addresses; remove nodeName", c.NodeName, env)
	}
	k := c.Cluster.Kubernetes
	switch {
	case k == nil && !filepath.IsAbs(c.Cluster.Directory):
		reject("cluster.directory", "%q: want an absolute path, or cluster.kubernetes", c.Cluster.Directory)
	case k != nil && c.Cluster.Directory != "":
		reject("cluster", "has both directory and kubernetes; want one of them")
	case k != nil && k.Kubeconfig != "" && !filepath.IsAbs(k.Kubeconfig):
		reject("cluster.kubernetes.kubeconfig", "%q: want an absolute path", k.Kubeconfig)
	}
	if c.Cluster.InitialPool != nil {
		if k == nil {
			reject("cluster.initialPool", "is for cluster.kubernetes only; put an IPPool into the directory")
		}
		if errs := InitialPool(*c.Cluster.InitialPool).Validate(); len(errs) > 0 {
			reject("cluster.initialPool", "%s", errs.ToAggregate())
		}
	}
	if k != nil && k.Server != "" {
		validateURL(reject, "cluster.kubernetes.server", k.Server)
	}
	if d := time.Duration(*c.Cluster.LeaseIdleAfter); d < time.Second || d > 24*time.Hour {
		reject("cluster.leaseIdleAfter", "is %s, want 1s to 24h", d)
	}
	if len(c.Network.Ranges) > 0 {
		reject("network.ranges", "are given, and cluster too: with a cluster the node's leases are its ranges; remove one of the two")
	}
	if err := c.Network.rehearse(rehearsalPool(c.Network.MTU)); err != nil {
		reject("network", "no pod could be attached: %s", err)
	}
}

// nodeName is RFC 1123's subdomain, which is what Kubernetes takes for a Node.
var nodeName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// rehearsalPool stands for the leases that the node will get. An MTU too small
// for IPv6 is good for IPv4 pods.
func rehearsalPool(mtu int) ipam.Pool {
	subnets := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	if mtu == 0 || mtu >= attach.MinMTU6 {
		subnets = append(subnets, netip.MustParsePrefix("2001:db8::/64"))
	}
	var pool ipam.Pool
	for _, subnet := range subnets {
		r, err := ipam.NewRange(ipam.Range{Subnet: subnet})
		if err == nil {
			pool.Sets = append(pool.Sets, ipam.Set{r})
		}
	}
	return pool
}

func (n NetworkConfiguration) validate(reject rejector) {
	b := n.Backend
	if b.Type != topology.Auto && b.Type != topology.VXLAN && b.Type != topology.Native {
		reject("network.backend.type", "is %q, want auto, vxlan or native", b.Type)
	}
	if b.VNI < 1 || b.VNI >= 1<<24 {
		reject("network.backend.vni", "is %d, want 1 to 16777215", b.VNI)
	}
	if b.Port < 1 || b.Port > 65535 {
		reject("network.backend.port", "is %d, want 1 to 65535", b.Port)
	}
	if !slices.Contains([]string{"auto", "on", "off"}, b.ChecksumOffload) {
		reject("network.backend.checksumOffload", "is %q, want auto, on or off", b.ChecksumOffload)
	}
	var families [2]bool
	for i, a := range n.NodeAddresses {
		switch {
		case !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "":
			reject(fmt.Sprintf("network.nodeAddresses[%d]", i), "%s: want a unicast address that other nodes can reach", a)
		case families[family(a)]:
			reject(fmt.Sprintf("network.nodeAddresses[%d]", i), "%s: is the second one of its family; want at most one IPv4 and one IPv6 address", a)
		default:
			families[family(a)] = true
		}
	}
	for i, p := range n.MasqueradeExclude {
		if !p.IsValid() || p != p.Masked() {
			reject(fmt.Sprintf("network.masqueradeExclude[%d]", i), "%s: has host bits set; it should be %s", p, p.Masked())
		}
	}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
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
