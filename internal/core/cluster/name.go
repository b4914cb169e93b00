// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"weft.dev/weft/internal/core/attach"
)

// LeaseName returns the name of the lease for a subnet, a DNS label:
// "10-42-3-0-24" for 10.42.3.0/24, "fd00-42-0-3-0-0-0-0-64" for
// fd00:42:0:3::/64. Every subnet has one name and every name one subnet.
func LeaseName(subnet netip.Prefix) string {
	a := subnet.Addr()
	var b strings.Builder
	if a.Is4() {
		for _, octet := range a.As4() {
			fmt.Fprintf(&b, "%d-", octet)
		}
	} else {
		bytes := a.As16()
		for i := 0; i < len(bytes); i += 2 {
			fmt.Fprintf(&b, "%x-", uint16(bytes[i])<<8|uint16(bytes[i+1]))
		}
	}
	return b.String() + strconv.Itoa(subnet.Bits())
}

// ParseLeaseName is the inverse of LeaseName; it refuses every other spelling.
func ParseLeaseName(name string) (netip.Prefix, error) {
	parts := strings.Split(name, "-")
	text := ""
	switch len(parts) {
	case 5:
		text = strings.Join(parts[:4], ".")
	case 9:
		text = strings.Join(parts[:8], ":")
	}
	subnet, err := netip.ParsePrefix(text + "/" + parts[len(parts)-1])
	if err != nil || subnet != subnet.Masked() || LeaseName(subnet) != name {
		return netip.Prefix{}, fmt.Errorf("lease name %q: want a subnet such as 10-42-3-0-24 or fd00-42-0-3-0-0-0-0-64", name)
	}
	return subnet, nil
}

// VTEPMAC returns the hardware address of a node's VXLAN devices: locally
// administered, unicast (IEEE 802), and a function of the node's name, so that
// it survives the device and no two nodes of a cluster share one.
func VTEPMAC(node string) attach.MAC {
	sum := sha256.Sum256([]byte("weft vtep " + node))
	mac := attach.MAC(sum[:6])
	mac[0] = mac[0]&^0x01 | 0x02
	return mac
}
