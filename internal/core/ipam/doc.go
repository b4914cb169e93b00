// SPDX-License-Identifier: Apache-2.0

// Package ipam decides which address an attachment gets.
//
// The data: a Range is a run of addresses inside one subnet; a Set is a list of
// ranges of one family that serve as one; a Pool is a list of sets, and an
// attachment gets one address of every set. Ranges and pools come from NewRange
// and NewPool, which fill in the defaults and refuse what is contradictory; the
// other functions rely on that. A Usage says which addresses of one address
// scope are used by whom, and which were released when.
//
// It is pure: no I/O, clock, randomness, goroutines. The caller replays its
// journal into a Usage by Take, Free and Restore, asks Allocate, makes the
// answer durable, and then calls Take. Nothing is safe for concurrent use.
//
// # Order of choice
//
// Within one set, Allocate grants the first of:
//
//  1. an address that the same owner holds already: a repeated ADD gets what
//     it got before, and nothing leaks;
//  2. the lowest address never used, ranges in their order;
//  3. the address released longest ago, in whichever range. If it is still
//     cooling down then nothing better is left, and the allocation says so
//     (Early).
//
// A freed address thus rests as long as the pool allows, even beyond the
// cool-down: late packets for the dead pod must not reach a living one.
//
// # Invariants
//
//   - An address has at most one owner, and is used, released or neither
//     ("never used"), exactly one of the three.
//   - The gateway, an excluded address and one outside its range are never
//     granted, not even by request.
//   - The answer depends on what is used and released alone, never on caches: a
//     Usage rebuilt from Used and Released gives the same answers.
//   - Releases are kept in the order of the calls, and their times never
//     decrease along it.
//
// # Limits
//
// The memory of releases is bounded (see Usage.Free); a release that is
// forgotten makes its address one never used. Addresses for which Request.Avoid
// holds are stepped over one by one, at most 2^20 of them in one range; every
// other gap is crossed by arithmetic, whatever its size.
//
// It does not choose subnets for nodes (package lease), talk to a delegated
// plugin, or know routes and DNS.
package ipam
