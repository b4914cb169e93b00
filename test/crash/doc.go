// SPDX-License-Identifier: Apache-2.0

// Package crash proves that nothing is lost, leaked or handed out twice when a
// process of Weft is killed, whatever it was doing.
//
// The programs are built with the tag "crashpoints" (package internal/crash).
// Each scenario is one call: a verb, the program that serves it, the process
// that shall die. It is served once without harm, to learn every point that it
// passes; then once for each point and each thing that a runtime may do next,
// with SIGKILL at the point:
//
//	retry    the same call again, then DEL
//	del      DEL instead
//	again    after a killed DEL: ADD once more, then DEL
//	repeat   after a killed ADD that had completed: the same call, where the
//	         configuration does not allow a repetition
//	offline  the agent stays dead: DEL by the shim
//	abandon  nothing: the sandbox goes, and garbage collection must find out
//
// After the kill, and again at the end, kernel and journal are compared: no
// address that is in use is free; everything on the node is as it was before
// the call; the retried ADD gets the address that the intent names.
//
// That the points are complete is checked against the kernel's own view of the
// process (ptrace): between two effects there must be a point.
package crash
