// SPDX-License-Identifier: Apache-2.0

// Package mesh breaks networks of many nodes in the lab, with real agents, the
// real kernel and real packets, and demands that they heal.
//
// # What is demanded after every disturbance
//
// Within a bound, found out by polling:
//
//   - What each node's kernel holds of Weft's (routes of protocol 119; VXLAN
//     devices with addresses, neighbours and FDB entries; pods' interfaces;
//     masquerading; forwarding) is exactly what the registry's files call for:
//     nothing stale, nothing missing. What they call for is worked out here from
//     the manifests and from where the lab put the nodes, not by Weft's code.
//   - `weft status` says on every node that all is in sync, and names exactly
//     those objects as rejected that the test expects, with the reason.
//   - Every pod reaches every other and the outside by ICMP, TCP and UDP; the
//     source address is unchanged, or outside the node's.
//   - Foreign objects that the test put beside ours are as they were.
//
// Agents are started and killed by the test itself and not by the lab, so that
// it happens at any time, also in the middle of an ADD.
//
//	WEFT_BIN        directory of the programs (default bin/)
//	WEFT_MESH_SEED  seed of the random decisions; it is printed
package mesh
