// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"slices"

	"weft.dev/weft/internal/cni"
)

// kindByCode names the errors of CNI calls. Whoever reads a dashboard does not
// know the numbers.
var kindByCode = map[cni.Code]string{
	cni.CodeVersion:          "version",
	cni.CodeUnsupportedField: "unsupported",
	cni.CodeUnknownContainer: "unknown_container",
	cni.CodeEnvironment:      "environment",
	cni.CodeIO:               "io",
	cni.CodeDecode:           "decode",
	cni.CodeConfig:           "config",
	cni.CodeNetns:            "netns",
	cni.CodeTryAgain:         "try_again",
	cni.CodeUnavailable:      "unavailable",
	cni.CodeLimited:          "limited",
	cni.CodeExists:           "exists",
	cni.CodeDrift:            "drift",
	cni.CodeAddressInUse:     "address_in_use",
	cni.CodeKernel:           "kernel",
	cni.CodeDelegate:         "delegate",
	cni.CodePortInUse:        "port_in_use",
	cni.CodeRefused:          "refused",
	cni.CodeInternal:         "internal",
}

// otherKind is a code that has no name here, such as a delegate's own.
const otherKind = "other"

func kindOf(code cni.Code) string {
	if kind, known := kindByCode[code]; known {
		return kind
	}
	return otherKind
}

// kinds returns every kind there is, in order.
func kinds() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for _, kind := range kindByCode {
			if !yield(kind) {
				return
			}
		}
		yield(otherKind)
	})
}
