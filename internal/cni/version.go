// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"strconv"
	"strings"
)

// versions are the released versions of the specification, oldest first. There
// is none that we speak only in part.
const versions = "0.1.0 0.2.0 0.3.0 0.3.1 0.4.0 1.0.0 1.1.0"

// Versions in which something changed that the code asks for.
const (
	oldestVersion = "0.1.0" // also what a missing cniVersion means
	listVersion   = "0.3.0" // the result lists interfaces and any number of addresses
	checkVersion  = "0.4.0" // CHECK
	plainVersion  = "1.0.0" // ips[].version disappears
	gcVersion     = "1.1.0" // GC, STATUS, more fields of interfaces and routes
	newestVersion = "1.1.0"
)

// Versions returns the supported versions, oldest first.
func Versions() []string { return strings.Fields(versions) }

// Supported reports whether version is one of Versions.
func Supported(version string) bool {
	for _, v := range Versions() {
		if v == version {
			return true
		}
	}
	return false
}

// checkSupported refuses a version that we do not speak.
func checkSupported(key, version string) *Error {
	if Supported(version) {
		return nil
	}
	return Errorf(CodeVersion, "%s %s is not supported; use one of %s", key, quote(version), versions)
}

// AtLeast reports whether version is minimum or newer. An empty version means
// 0.1.0. What is not a version of up to three numbers is older than any.
func AtLeast(version, minimum string) bool {
	v, ok := parseVersion(version)
	m, okMinimum := parseVersion(minimum)
	if !ok || !okMinimum {
		return false
	}
	for i := range v {
		if v[i] != m[i] {
			return v[i] > m[i]
		}
	}
	return true
}

func parseVersion(s string) (numbers [3]uint64, ok bool) {
	if s == "" {
		s = oldestVersion
	}
	parts := strings.Split(s, ".")
	if len(parts) > len(numbers) {
		return numbers, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return numbers, false
		}
		numbers[i] = n
	}
	return numbers, true
}

// replyVersion is the version to answer in when the answer has the same shape
// in all of them.
func replyVersion(version string) string {
	if Supported(version) {
		return version
	}
	return newestVersion
}

// VersionOf returns the cniVersion in a configuration, "0.1.0" where there is
// none and "" where the input is not a JSON object. It is for answers that must
// be given whatever the input is: VERSION and errors.
func VersionOf(stdin []byte) string {
	var wire struct {
		CNIVersion string `json:"cniVersion"`
	}
	if json.Unmarshal(stdin, &wire) != nil {
		return ""
	}
	return versionOrOldest(wire.CNIVersion)
}

func versionOrOldest(version string) string {
	if version == "" {
		return oldestVersion
	}
	return version
}

// VersionReply returns the answer to VERSION. It repeats the version of the
// request (specification, section "VERSION: probe plugin version support") if
// that is supported, and else names the newest; "" stands for a request with
// empty or unreadable input, which is answered all the same.
func VersionReply(stdinVersion string) []byte {
	out, err := json.Marshal(struct {
		CNIVersion        string   `json:"cniVersion"`
		SupportedVersions []string `json:"supportedVersions"`
	}{replyVersion(stdinVersion), Versions()})
	if err != nil {
		panic("cni: strings do not encode: " + err.Error())
	}
	return out
}
