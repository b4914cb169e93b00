// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
)

// resultOf describes the attachment as it is: the addresses with the length
// that they have on the interface, every route that was made. It is a function
// of what is recorded, so a repeated ADD can give the identical answer.
func resultOf(s attach.Spec, p attach.Plan, sandbox string, dns cni.DNS, prev *cni.Result) cni.Result {
	r := cni.Result{
		Interfaces: []cni.Interface{
			{Name: p.HostIfname, MAC: p.HostMAC.String(), MTU: p.MTU},
			{Name: p.Ifname, MAC: p.MAC.String(), MTU: p.MTU, Sandbox: sandbox},
		},
		Routes: p.Routes,
		DNS:    dns,
	}
	for _, a := range s.Addresses {
		inside := 1
		r.IPs = append(r.IPs, cni.IP{
			Interface: &inside,
			Address:   netip.PrefixFrom(a.Addr, a.Addr.BitLen()),
			Gateway:   attach.GatewayOf(a),
		})
	}
	if prev != nil {
		r = r.Append(*prev)
	}
	return r
}

// answer is the part of a result that does not follow from the attachment.
type answer struct {
	DNS        *cni.DNS        `json:"dns,omitempty"`
	PrevResult json.RawMessage `json:"prevResult,omitempty"`
}

// encodeAnswer returns what is recorded of it; nil where it says nothing.
func encodeAnswer(dns cni.DNS, prev *cni.Result) (json.RawMessage, error) {
	var a answer
	if !dns.IsZero() {
		a.DNS = &dns
	}
	if prev != nil {
		raw, err := prev.Encode(cni.NewestVersion)
		if err != nil {
			return nil, err
		}
		a.PrevResult = raw
	}
	if a.DNS == nil && a.PrevResult == nil {
		return nil, nil
	}
	return json.Marshal(a)
}

// recordedResult rebuilds the result of a completed ADD.
func recordedResult(rec facts.Record, instance string) (cni.Result, error) {
	d, err := rec.Detail()
	if err != nil {
		return cni.Result{}, err
	}
	spec := d.Spec(rec.Key, instance)
	plan, err := attach.NewPlan(spec)
	if err != nil {
		return cni.Result{}, err
	}
	var a answer
	if d.Answer != nil {
		if err := json.Unmarshal(d.Answer, &a); err != nil {
			return cni.Result{}, fmt.Errorf("read the recorded answer of %s: %w", rec.Key, err)
		}
	}
	var dns cni.DNS
	if a.DNS != nil {
		dns = *a.DNS
	}
	var prev *cni.Result
	if a.PrevResult != nil {
		parsed, err := cni.ParseResult(a.PrevResult, cni.NewestVersion)
		if err != nil {
			return cni.Result{}, fmt.Errorf("read the recorded prevResult of %s: %w", rec.Key, err)
		}
		prev = &parsed
	}
	return resultOf(spec, plan, d.Netns, dns, prev), nil
}

// encode gives the result the shape of the caller's version.
func encode(r cni.Result, err error, version string) ([]byte, *cni.Error) {
	if err != nil {
		return nil, cni.AsError(err)
	}
	out, err := r.Encode(version)
	if err != nil {
		return nil, cni.AsError(err)
	}
	return out, nil
}
