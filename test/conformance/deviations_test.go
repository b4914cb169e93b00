// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"strings"
)

// ptpDeviations are the cases that the reference ptp v1.9.1 with host-local
// v1.9.1 fails, and why. They were read off its behaviour, not its intentions.
var ptpDeviations = deviations(map[string]string{
	each("VERSION-07@%s", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0"):                     "answers 1.1.0 whatever was asked; standard input is not read",
	each("ERROR-02@%s", "environment", "decode", "config", "netns", "exhausted", "exists", "check"): "the error object has no cniVersion",
	each("ERROR-03@%s", "netns", "exhausted", "exists", "check"):                                    "code 999",
	"ENV-04": "prints its name to stderr and succeeds",
	each("ENV-10@%d", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10): "error 4, but the message does not name the variable",
	each("ENV-11@%d", 0, 1, 2, 3, 4, 5, 6, 7):        "error 4, but the message does not name the variable",
	each("CONFIG-02@%d", 4, 5, 6, 7):                 "code 999",
	"CONFIG-02@8":                                    "a negative mtu is taken for none",
	each("NETNS-01@%s", "missing", "missing-directory", "file", "directory", "socket", "device", "dangling-link"): "code 999",
	each("NETNS-01@%s", "mount-namespace", "user-namespace"):                                                      "code 999",
	"NETNS-01@fifo": "hangs in open",
	each("NETNS-02@%s", "file", "directory", "socket", "device", "mount-namespace", "user-namespace"): "DEL is an error",
	"NETNS-02@fifo":                      "hangs in open",
	each("NETNS-04@%s", "bound", "proc"): "host-local prints its result and then the error; ptp can read neither",
	each("NETNS-05@%s", "bound", "proc"): "host-local refuses DEL in the plugin's own namespace, and ptp stops there",
	"ADD-12":                             "DEL removes whatever has the name",
	"ADD-15":                             "the routes of a second attachment to one subnet collide",
	"ADD-19":                             "code 999",
	"RESULT-08":                          "does not report mtu",
	"RESULT-10 " + each("RESULT-11@%s", "0.3.0", "0.3.1", "0.4.0", "1.0.0"): "ignores prevResult",
	each("ROUTE-01@%s", "mtu", "advmss"):                                    "ignored",
	each("ROUTE-01@%s", "scope"):                                            "gives the route a gateway, which the kernel refuses in scope link",
	each("ROUTE-02@%s", "scope"):                                            "gives the route a gateway, which the kernel refuses in scope link",
	each("ROUTE-02@%s", "mtu", "advmss", "priority", "table"):               "a 1.0.0 result has the route fields of 1.1.0",
	"DEL-07 DEL-14": "removes the other pod's interface by its name, then fails",
	"DEL-13@04":     "host-local validates ranges at DEL",
	"DEL-13@06":     "host-local validates routes at DEL",
	"DEL-13@08":     "validates mtu at DEL",
	"CHECK-03":      "code 999",
	"CHECK-27":      "does not look at the host's end",
	"CHECK-29":      "does not look at the host's routes",
	each("GC-%s", "02", "03", "10", "11", "14"): "GC is not implemented and reports success",
	"GC-09":     "the routes of a second attachment to one subnet collide; GC is not implemented",
	"STATUS-03": "host-local does not implement STATUS and reports success",
	each("CAP-01@%s", "infinibandGUID", "deviceID", "aliases"): "silently ignored",
	each("CAP-%s", "06", "07", "08", "09", "11", "12"):         "silently ignored",
	each("ARGS-%s", "05", "06"):                                "host-local adds all sources up and demands every address",
	each("ARGS-%s", "08", "09", "10"):                          "code 999",
	"ARGS-11":                                                  "host-local validates CNI_ARGS at DEL",
	"DELEGATE-05":                                              "GC is not implemented and reports success",
	each("DELEGATE-12@%d", 0, 1):                               "does not call DEL after a failed ADD of the delegate",
	each("DELEGATE-13@%d", 0, 1, 3):                            "does not call DEL when it cannot use the delegate's answer",
	"DELEGATE-13@2":                                            "calls DEL, but leaves the interfaces that it made",
	"IPAM-03":                                                  "code 999",
	"IPAM-04":                                                  "host-local does not implement STATUS and reports success",
	"IPAM-06":                                                  "host-local does not implement GC and reports success",
	"IPAM-08":                                                  "names the ranges by number only",
	each("IPAM-11@%s", "bridge", "ptp", "macvlan"): "host-local does not implement STATUS and reports success",
	"LIBCNI-05":  "GC is not implemented and reports success",
	"LIBCNI-06":  "host-local does not implement STATUS and reports success",
	"LIBCNI-07":  "code 999",
	"MACHINE-01": "leaves the chain POSTROUTING of iptables' table nat",
})

// each formats one id per argument, separated by blanks.
func each[T any](format string, args ...T) string {
	var ids []string
	for _, a := range args {
		ids = append(ids, fmt.Sprintf(format, a))
	}
	return join(ids)
}

// deviations gives every id of a list its reason.
func deviations(reasons map[string]string) map[string]string {
	byID := map[string]string{}
	for ids, why := range reasons {
		for id := range strings.FieldsSeq(ids) {
			byID[id] = why
		}
	}
	return byID
}
