// SPDX-License-Identifier: Apache-2.0

// Package inspect turns facts into the rows that the operator's commands
// print. It reads the journal without locking it, so it works with the agent
// up or down, asks a running agent for its report, and changes nothing.
package inspect
