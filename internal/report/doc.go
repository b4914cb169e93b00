// SPDX-License-Identifier: Apache-2.0

// Package report is what a running agent tells the operator's commands about
// itself and the cluster: rows, which travel as JSON over the agent's socket
// and are printed as they are.
//
// The rows hold no logic. Whoever fills them in (package agent; for what can
// be seen without an agent, package inspect) decides what is a problem.
package report
