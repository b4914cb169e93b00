// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"math"

	"weft.dev/weft/internal/core/attach"
)

// wirePort is an entry of runtimeConfig.portMappings.
type wirePort struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

// wireBandwidth is runtimeConfig.bandwidth.
type wireBandwidth struct {
	IngressRate  uint `json:"ingressRate"`
	IngressBurst uint `json:"ingressBurst"`
	EgressRate   uint `json:"egressRate"`
	EgressBurst  uint `json:"egressBurst"`
}

// readRuntimePorts reads the ports of the host that shall lead to the pod. An
// entry with host port 0 is a container's port that is not mapped: runtimes
// leave it out, or should.
func readRuntimePorts(cfg *Config, raw json.RawMessage) *Error {
	if isNull(raw) {
		return nil
	}
	var wire []wirePort
	if err := decode("network configuration", "runtimeConfig.portMappings.", raw, &wire); err != nil {
		return err
	}
	for i, w := range wire {
		if w.HostPort == 0 {
			continue
		}
		p, err := w.port(index("runtimeConfig.portMappings", i))
		if err != nil {
			return err
		}
		cfg.Ports = append(cfg.Ports, p)
	}
	return nil
}

func (w wirePort) port(key string) (p attach.Port, err *Error) {
	if p.HostPort, err = portNumber(key+".hostPort", w.HostPort); err != nil {
		return p, err
	}
	if p.ContainerPort, err = portNumber(key+".containerPort", w.ContainerPort); err != nil {
		return p, err
	}
	p.Protocol = attach.TCP // where nothing is said, as in the pod's specification
	if w.Protocol != "" {
		var known bool
		if p.Protocol, known = attach.ParseProtocol(w.Protocol); !known {
			return p, Errorf(CodeConfig, "%s.protocol %s: want tcp, udp or sctp", key, quote(w.Protocol))
		}
	}
	if p.HostIP, err = parseAddrOrNone(key+".hostIP", w.HostIP); err != nil {
		return p, err
	}
	if p.HostIP.IsMulticast() {
		return p, Errorf(CodeConfig, "%s.hostIP %s: want an address of the host, not a multicast address", key, quote(w.HostIP))
	}
	return p, nil
}

func portNumber(key string, n int) (uint16, *Error) {
	if n < 1 || n > math.MaxUint16 {
		return 0, Errorf(CodeConfig, "%s %d: want 1 to %d", key, n, math.MaxUint16)
	}
	return uint16(n), nil
}

// readRuntimeBandwidth reads limits of rate. A burst without a rate says
// nothing: runtimes pass one for the direction that has no limit, too.
func readRuntimeBandwidth(cfg *Config, raw json.RawMessage) *Error {
	if isNull(raw) {
		return nil
	}
	var wire wireBandwidth
	if err := decode("network configuration", "runtimeConfig.bandwidth.", raw, &wire); err != nil {
		return err
	}
	if wire.IngressRate > 0 {
		cfg.Limits.Ingress = attach.Limit{Rate: uint64(wire.IngressRate), Burst: uint64(wire.IngressBurst)}
	}
	if wire.EgressRate > 0 {
		cfg.Limits.Egress = attach.Limit{Rate: uint64(wire.EgressRate), Burst: uint64(wire.EgressBurst)}
	}
	return nil
}
