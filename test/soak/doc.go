// SPDX-License-Identifier: Apache-2.0

// Package soak runs thousands of ADD and DEL calls, sixteen at a time, while
// plugins and agent are killed at random, sandboxes vanish without DEL, and
// calls are repeated.
//
// A model of what the runtime was told (which container holds which addresses)
// is the judge. All the time: no address is acknowledged to two attachments
// that live, and the host leads each to the interface of its attachment. At the
// end: no address used, no record, no link, no route, no rule, no file too
// many; and the agent holds as much memory and as many descriptors as before.
//
// The random decisions derive from one seed, which is printed. What the
// scheduler makes of them differs from run to run.
//
//	WEFT_SOAK_PAIRS  ADD/DEL pairs against the agent (default 10000); a tenth
//	                 of it against the thin plugin, a twentieth against an agent
//	                 in the test's own process
//	WEFT_SOAK_SEED   the seed to repeat
package soak
