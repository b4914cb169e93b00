// SPDX-License-Identifier: Apache-2.0

// Package plugin is what the binary weft-cni does, and the CNI half of what
// the agent does for it.
//
// Main is the process: it reads the call, decides who serves it, prints the
// answer and writes one line of log. Verbs serves a call of weft-cni against an
// engine; the thin plugin, the shim without its agent, and the agent all use
// it, so the three cannot answer differently. IPAM serves a call of weft-ipam.
//
// Nothing here may import net/http, a Kubernetes client, gRPC or a logging
// framework: the process starts once or twice per pod, and its start is most
// of what an ADD costs.
package plugin
