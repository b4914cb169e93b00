// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
)

// Key names an attachment. The CNI specification identifies one by exactly
// these three (section 2, "Runtime considerations"): one container may be
// attached to a network several times, by different interfaces.
type Key struct {
	Network     string // "name" of the network configuration
	ContainerID string // CNI_CONTAINERID: the sandbox
	Ifname      string // CNI_IFNAME: the interface inside the sandbox
}

// String returns network/containerID/ifname. None of the three can contain a
// slash, so the form is unambiguous.
func (k Key) String() string { return k.Network + "/" + k.ContainerID + "/" + k.Ifname }

// ParseKey is the inverse of String.
func ParseKey(s string) (Key, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return Key{}, fmt.Errorf("attachment %q: want network/containerID/ifname", s)
	}
	return Key{Network: parts[0], ContainerID: parts[1], Ifname: parts[2]}, nil
}

// HostIfnamePrefix begins the name of every host-side interface that Weft
// makes for a pod; it is one half of the mark by which we know our own.
const HostIfnamePrefix = "weft"

// hostIfnameEncoding is lower-case base32 without padding: every character is
// legal in an interface name and 5 bits wide.
var hostIfnameEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// HostIfname returns the name of the host end: the prefix and 55 bits of a
// hash of the key, 15 bytes in all, the longest that the kernel takes
// (IFNAMSIZ is 16 with the terminating zero). It is a function of the key
// alone, so DEL finds the interface without any record.
func (k Key) HostIfname() string {
	sum := k.digest("ifname")
	return HostIfnamePrefix + hostIfnameEncoding.EncodeToString(sum[:7])[:11]
}

// shaperPrefix takes the place of HostIfnamePrefix, and is as long.
const shaperPrefix = "wshp"

// Shaper returns the name of the interface of kind ifb that belongs to a host
// end: in it waits what the pod sends.
func Shaper(hostIfname string) string {
	return shaperPrefix + strings.TrimPrefix(hostIfname, HostIfnamePrefix)
}

// ShapedBy is the inverse of Shaper. It reports false for any other name.
func ShapedBy(ifname string) (hostIfname string, ok bool) {
	hash, ok := strings.CutPrefix(ifname, shaperPrefix)
	return HostIfnamePrefix + hash, ok
}

// MAC returns the default hardware address of the pod's end: locally
// administered, unicast, derived from the key, so that a repeated ADD gives
// the pod the address that its peers may have cached.
func (k Key) MAC() MAC {
	sum := k.digest("mac")
	mac := MAC(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac
}

func (k Key) digest(purpose string) [sha256.Size]byte {
	return sha256.Sum256([]byte(purpose + "\x00" + k.String()))
}
