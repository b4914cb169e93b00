// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"time"
)

// Forwarding is what hands a call of a thick plugin to the agent.
type Forwarding struct {
	Socket  string
	Timeout time.Duration
	LogFile string
}

// ParseForwarding reads only that, a tenth of the time of ParseConfig: the
// agent reads the rest. It reports false where anything is unusual, and then
// ParseConfig tells what.
func ParseForwarding(stdin []byte) (Forwarding, bool) {
	var wire struct {
		Socket  string          `json:"socket"`
		Timeout *int            `json:"timeout"`
		LogFile string          `json:"logFile"`
		IPAM    json.RawMessage `json:"ipam"`
	}
	if json.Unmarshal(stdin, &wire) != nil || wire.Socket == "" || !isNull(wire.IPAM) {
		return Forwarding{}, false
	}
	var f Forwarding
	var faults [3]*Error
	f.Socket, faults[0] = cleanPath("socket", wire.Socket)
	f.LogFile, faults[1] = cleanPath("logFile", wire.LogFile)
	f.Timeout, faults[2] = timeout(wire.Timeout)
	return f, faults == [3]*Error{} && len(f.Socket) <= maxSocket
}

// Forwarding returns the same from a configuration.
func (c *Config) Forwarding() Forwarding {
	return Forwarding{Socket: c.Socket, Timeout: c.Timeout, LogFile: c.LogFile}
}
