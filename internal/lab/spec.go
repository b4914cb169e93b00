// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
)

// Mode says how pods are attached.
type Mode string

// The two modes of the plugin. A thick lab runs one agent per node; a thin lab
// runs none, each call of the plugin does everything itself.
const (
	Thick Mode = "thick"
	Thin  Mode = "thin"
)

// Family says which families the machines of a lab speak.
type Family string

// Families.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
	Dual Family = "dual"
)

// has reports whether the family of an address is among them.
func (f Family) has(a netip.Addr) bool {
	return f == Dual || f == IPv4 && a.Is4() || f == IPv6 && a.Is6()
}

// Backend is how packets travel between nodes, in the words of the agent's
// configuration.
type Backend string

// Backends.
const (
	Auto   Backend = "auto"
	VXLAN  Backend = "vxlan"
	Native Backend = "native"
)

// DefaultName is the name of a lab that was given none.
const DefaultName = "lab"

// Network is the name of the network in the configuration of every lab.
const Network = "weft"

// PodNamespace is the Kubernetes namespace that the lab's pods claim to be of.
const PodNamespace = "lab"

// MaxNodes is how many nodes the underlay has addresses for.
const MaxNodes = 200

// Spec is what a lab is made from. It is stored in the lab's directory, so
// that later commands need no repetition of it.
type Spec struct {
	Name string `json:"name"` // a DNS label (RFC 1123)
	Mode Mode   `json:"mode"`
	// Family is that of the nodes and of the outside; that of the pods follows
	// from Subnets.
	Family Family `json:"family"`
	// Subnets are the pods'. Thick: the address space that nodes lease their
	// blocks from, at most one per family. Thin: each is a range set of its
	// own, a pod gets one address out of each.
	Subnets []netip.Prefix `json:"subnets"`
	// Backend is how packets travel between nodes; thick only.
	Backend Backend `json:"backend,omitempty"`
	// PluginDirs are searched for plugins after the directory of the running
	// program. Absolute paths.
	PluginDirs []string `json:"pluginDirs,omitempty"`
	// Conflist replaces the network configuration that the lab would write: a
	// network configuration list by CNI, as JSON text.
	Conflist string `json:"conflist,omitempty"`
	Nodes    int    `json:"nodes"`    // that Up makes, 1 to MaxNodes; thin: 1
	Segments int    `json:"segments"` // number of underlay segments, 1 to Nodes
}

// WithDefaults fills what is not set.
func (s Spec) WithDefaults() Spec {
	if s.Name == "" {
		s.Name = DefaultName
	}
	if s.Mode == "" {
		s.Mode = Thick
	}
	if s.Family == "" {
		s.Family = Dual
	}
	if len(s.Subnets) == 0 {
		s.Subnets = defaultSubnets(s.Mode, s.Family)
	}
	if s.Backend == "" && s.Mode == Thick {
		s.Backend = Auto
	}
	if s.Nodes == 0 {
		s.Nodes = 1
	}
	if s.Segments == 0 {
		s.Segments = 1
	}
	return s
}

// defaultSubnets are of a private IPv4 range (RFC 1918) and of unique local
// IPv6 (RFC 4193): for a cluster what nodes lease their blocks from, for a
// thin node one such block.
func defaultSubnets(m Mode, f Family) []netip.Prefix {
	bits4, bits6 := 16, 48
	if m == Thin {
		bits4, bits6 = 24, 64
	}
	var subnets []netip.Prefix
	for _, p := range []netip.Prefix{
		netip.PrefixFrom(netip.MustParseAddr("10.42.0.0"), bits4),
		netip.PrefixFrom(netip.MustParseAddr("fd00:42::"), bits6),
	} {
		if f.has(p.Addr()) {
			subnets = append(subnets, p)
		}
	}
	return subnets
}

// agents reports whether the lab's nodes run an agent.
func (s Spec) agents() bool { return s.Mode == Thick }

// Validate says everything that is wrong with the spec, not only the first
// thing.
func (s Spec) Validate() error {
	errs := []error{validateLabel("lab name", s.Name)}
	if s.Family != IPv4 && s.Family != IPv6 && s.Family != Dual {
		errs = append(errs, fmt.Errorf("family %q: want %q, %q or %q", s.Family, IPv4, IPv6, Dual))
	}
	if s.Nodes < 1 || s.Nodes > MaxNodes {
		errs = append(errs, fmt.Errorf("nodes %d: want 1 to %d", s.Nodes, MaxNodes))
	} else if s.Segments < 1 || s.Segments > s.Nodes {
		errs = append(errs, fmt.Errorf("segments %d: want 1 to the number of nodes, %d", s.Segments, s.Nodes))
	}
	errs = append(errs, s.validateMode(), validateSubnets(s.Subnets))
	for _, dir := range s.PluginDirs {
		if !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("plugin directory %q: want an absolute path", dir))
		}
	}
	return errors.Join(errs...)
}

func (s Spec) validateMode() error {
	switch s.Mode {
	case Thick:
		return errors.Join(s.validateBackend(), validateOnePerFamily(s.Subnets))
	case Thin:
		var errs []error
		if s.Nodes != 1 {
			errs = append(errs, fmt.Errorf("nodes %d: want 1 in a thin lab, because pods of several nodes reach each other by the agents' work", s.Nodes))
		}
		if s.Backend != "" {
			errs = append(errs, fmt.Errorf("backend %q: want none in a thin lab, which has no agent", s.Backend))
		}
		return errors.Join(errs...)
	}
	return fmt.Errorf("mode %q: want %q or %q", s.Mode, Thick, Thin)
}

func (s Spec) validateBackend() error {
	switch s.Backend {
	case Auto, VXLAN, Native:
		return nil
	}
	return fmt.Errorf("backend %q: want %q, %q or %q", s.Backend, Auto, VXLAN, Native)
}

func validateOnePerFamily(subnets []netip.Prefix) error {
	var errs []error
	for i, p := range subnets {
		for _, q := range subnets[:i] {
			if p.Addr().Is4() == q.Addr().Is4() {
				errs = append(errs, fmt.Errorf("subnet %s: want at most one per family in a thick lab, there is %s", p, q))
			}
		}
	}
	return errors.Join(errs...)
}

func validateSubnets(subnets []netip.Prefix) error {
	var errs []error
	for i, p := range subnets {
		if !p.IsValid() || p != p.Masked() {
			errs = append(errs, fmt.Errorf("subnet %s: want the first address of the subnet, %s", p, p.Masked()))
			continue
		}
		for _, u := range []netip.Prefix{underlay4, underlay6, outside4, outside6} {
			if p.Overlaps(u) {
				errs = append(errs, fmt.Errorf("subnet %s: overlaps %s, which the lab uses outside the pods", p, u))
			}
		}
		for _, q := range subnets[:i] {
			if p.Overlaps(q) {
				errs = append(errs, fmt.Errorf("subnet %s: overlaps subnet %s", p, q))
			}
		}
	}
	return errors.Join(errs...)
}

// label is RFC 1123's: what Kubernetes takes as the name of a pod and, not by
// chance, what needs no escaping in a path, a mount table or CNI_ARGS.
var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func validateLabel(what, name string) error {
	if !label.MatchString(name) {
		return fmt.Errorf("%s %q: want 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends", what, name)
	}
	return nil
}

// reserved are the names that `weft lab exec` understands besides the pods'.
var reserved = regexp.MustCompile(`^(outside|node[0-9]+|segment[0-9]+)$`)

// ValidatePodName refuses what is no DNS label and what names another part of
// the lab.
func ValidatePodName(name string) error {
	if err := validateLabel("pod name", name); err != nil {
		return err
	}
	if reserved.MatchString(name) {
		return fmt.Errorf("pod name %q: it is the name of another part of the lab", name)
	}
	return nil
}
