// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"net/netip"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

// Args is what CNI_ARGS says. Every field may be empty.
type Args struct {
	Pod              attach.Pod   // K8S_POD_NAMESPACE, K8S_POD_NAME, K8S_POD_UID
	InfraContainerID string       // K8S_POD_INFRA_CONTAINER_ID
	IPs              []netip.Addr // IP: addresses asked for, separated by commas
	MAC              attach.MAC   // MAC
	IgnoreUnknown    bool         // IgnoreUnknown: other keys are no error
}

// maxArg bounds a value in bytes; Kubernetes allows 253 for its longest names.
const maxArg = 253

// ParseArgs reads "K=V;K=V". A key that is repeated counts by its last value.
// An unknown key is CodeEnvironment unless IgnoreUnknown is 1 or true, except
// for further K8S_ keys: they describe the pod and demand nothing.
func ParseArgs(args string) (Args, *Error) {
	var a Args
	var unknown []string
	for pair := range strings.SplitSeq(args, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return Args{}, Errorf(CodeEnvironment, "CNI_ARGS=%s: want KEY=VALUE, found %s", quote(args), quote(pair))
		}
		known, reason := a.set(key, value)
		if reason != "" {
			return Args{}, Errorf(CodeEnvironment, "CNI_ARGS=%s: %s=%s: %s", quote(args), quote(key), quote(value), reason)
		}
		if !known {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 && !a.IgnoreUnknown {
		return Args{}, Errorf(CodeEnvironment, "CNI_ARGS=%s: unknown key %s; add IgnoreUnknown=1 to pass it nevertheless",
			quote(args), quote(strings.Join(unknown, ", ")))
	}
	return a, nil
}

// set stores one pair. It reports false for a key that it does not know and
// that may matter; reason is not empty if the value cannot be taken.
func (a *Args) set(key, value string) (known bool, reason string) {
	switch key {
	case "K8S_POD_NAMESPACE":
		return true, setName(&a.Pod.Namespace, value)
	case "K8S_POD_NAME":
		return true, setName(&a.Pod.Name, value)
	case "K8S_POD_UID":
		return true, setName(&a.Pod.UID, value)
	case "K8S_POD_INFRA_CONTAINER_ID":
		return true, setName(&a.InfraContainerID, value)
	case "IP":
		return true, a.setIPs(value)
	case "MAC":
		return true, a.setMAC(value)
	case "IgnoreUnknown":
		return true, a.setIgnoreUnknown(value)
	}
	return strings.HasPrefix(key, "K8S_"), ""
}

// setName takes a value that ends up in interface aliases and journals, where
// white space separates fields and a slash separates namespace from name.
func setName(field *string, value string) string {
	if len(value) > maxArg {
		return "longer than 253 bytes"
	}
	if !isField(value) || strings.Contains(value, "/") {
		return "contains white space, '/', a control character or invalid UTF-8"
	}
	*field = value
	return ""
}

func (a *Args) setIPs(value string) string {
	a.IPs = nil
	if value == "" {
		return ""
	}
	for s := range strings.SplitSeq(value, ",") {
		addr, err := parseWanted("IP", s)
		if err != nil {
			return "want addresses, each with or without prefix length, separated by commas"
		}
		a.IPs = append(a.IPs, addr)
	}
	return ""
}

func (a *Args) setMAC(value string) string {
	a.MAC = attach.MAC{}
	if value == "" {
		return ""
	}
	mac, ok := ParseMAC(value)
	if !ok {
		return macRule
	}
	a.MAC = mac
	return ""
}

func (a *Args) setIgnoreUnknown(value string) string {
	switch strings.ToLower(value) {
	case "1", "true":
		a.IgnoreUnknown = true
	case "0", "false":
		a.IgnoreUnknown = false
	default:
		return "want 1, true, 0 or false"
	}
	return ""
}
