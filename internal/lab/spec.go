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

// DefaultName is the name of a lab that was given none.
const DefaultName = "lab"

// Network is the name of the network in the configuration of every lab.
const Network = "weft"

// PodNamespace is the Kubernetes namespace that the lab's pods claim to be of.
const PodNamespace = "lab"

// DefaultSubnets are the pod subnets of a lab that was given none: one of a
// private IPv4 range (RFC 1918) and one of unique local IPv6 (RFC 4193).
func DefaultSubnets() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.42.0.0/24"),
		netip.MustParsePrefix("fd00:42::/64"),
	}
}

// Spec is what a lab is made from. It is stored in the lab's directory, so
// that later commands need no repetition of it.
type Spec struct {
	Name string `json:"name"` // a DNS label (RFC 1123)
	Mode Mode   `json:"mode"`
	// Subnets are the pods' subnets. Each is a range set of its own: a pod gets
	// one address out of each.
	Subnets []netip.Prefix `json:"subnets"`
	// PluginDirs are searched for plugins after the directory of the running
	// program. Absolute paths.
	PluginDirs []string `json:"pluginDirs,omitempty"`
	// Conflist replaces the network configuration that the lab would write: a
	// network configuration list by CNI, as JSON text.
	Conflist string `json:"conflist,omitempty"`
	Nodes    int    `json:"nodes"`    // number of nodes, 1 for now
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
	if len(s.Subnets) == 0 {
		s.Subnets = DefaultSubnets()
	}
	if s.Nodes == 0 {
		s.Nodes = 1
	}
	if s.Segments == 0 {
		s.Segments = 1
	}
	return s
}

// Validate says everything that is wrong with the spec, not only the first
// thing.
func (s Spec) Validate() error {
	errs := []error{validateLabel("lab name", s.Name)}
	if s.Mode != Thick && s.Mode != Thin {
		errs = append(errs, fmt.Errorf("mode %q: want %q or %q", s.Mode, Thick, Thin))
	}
	if s.Nodes != 1 {
		// Pods of two nodes could not reach each other yet.
		errs = append(errs, fmt.Errorf("nodes %d: want 1", s.Nodes))
	}
	errs = append(errs, validateSubnets(s.Subnets))
	for _, dir := range s.PluginDirs {
		if !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("plugin directory %q: want an absolute path", dir))
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
