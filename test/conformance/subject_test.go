// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Subject is a plugin under test.
type Subject struct {
	Name     string
	Features Feature
	// Binary is the plugin, IPAM the IPAM plugin that belongs to it.
	Binary, IPAM string
	// Dirs are the directories of the plugin; the reference plugins follow.
	Dirs []string
	// Config returns the plugin's part of a configuration for a network:
	// everything but cniVersion and name.
	Config func(n *Network) Object
	// Daemon returns the command of the daemon that serves a network, run in
	// the host's namespace; nil for a plugin that needs none.
	Daemon func(n *Network) (*daemonSpec, error)
	// Deviations are the cases that the subject fails, with the reason.
	Deviations map[string]string
}

// Has reports whether the subject offers every one of the features.
func (s *Subject) Has(f Feature) bool { return s.Features&f == f }

// Path returns the directories of CNI_PATH.
func (s *Subject) Path() []string { return append(append([]string{}, s.Dirs...), refplugins()) }

func (s *Subject) find(binary string) (string, error) {
	if filepath.IsAbs(binary) {
		return binary, nil
	}
	for _, dir := range s.Path() {
		path := filepath.Join(dir, binary)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not in %v", binary, s.Path())
}

func refplugins() string { return os.Getenv(insideEnv) }

// weftBin returns the directory of Weft's programs.
func weftBin() string {
	dir := os.Getenv("WEFT_BIN")
	if dir == "" {
		dir = "../../bin"
	}
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

// built reports whether the subject's programs are there. A missing program of
// Weft is a failure and never a reason to skip.
func (s *Subject) built() error {
	if _, err := s.find(s.Binary); err != nil {
		return errors.Join(err, errors.New("run make build"))
	}
	if s.Has(FeatureAgent) {
		if _, err := s.find("weft"); err != nil {
			return errors.Join(err, errors.New("run make build"))
		}
	}
	return nil
}

func subjects() []*Subject { return []*Subject{thin(), thick(), ptp()} }

// thin is Weft without a daemon.
func thin() *Subject {
	return &Subject{
		Name:     "thin",
		Features: FeatureWeft | FeatureInProcess | FeatureDelegate,
		Binary:   "weft-cni",
		IPAM:     "weft-ipam",
		Dirs:     []string{weftBin()},
		Config: func(n *Network) Object {
			return Object{"type": "weft-cni", "stateDir": n.StateDir, "ipam": n.ipam("weft-ipam")}
		},
	}
}

// thick is Weft with the node agent.
func thick() *Subject {
	return &Subject{
		Name:     "thick",
		Features: FeatureWeft | FeatureAgent,
		Binary:   "weft-cni",
		IPAM:     "weft-ipam",
		Dirs:     []string{weftBin()},
		Config: func(n *Network) Object {
			return Object{"type": "weft-cni", "stateDir": n.StateDir, "socket": n.Socket()}
		},
		Daemon: weftAgent,
	}
}

// ptp is the reference plugin that does what Weft does, with host-local.
func ptp() *Subject {
	return &Subject{
		Name:     "ptp",
		Features: FeatureInProcess | FeatureDelegate,
		Binary:   "ptp",
		IPAM:     "host-local",
		Config: func(n *Network) Object {
			return Object{"type": "ptp", "ipMasq": true, "ipam": n.ipam("host-local")}
		},
		Deviations: ptpDeviations,
	}
}
