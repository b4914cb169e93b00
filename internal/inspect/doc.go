// SPDX-License-Identifier: Apache-2.0

// Package inspect turns facts into the rows that the operator's commands
// print. It reads the journal without locking it, so it works with the agent
// up or down, and changes nothing.
package inspect
