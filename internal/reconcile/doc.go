// SPDX-License-Identifier: Apache-2.0

// Package reconcile brings the kernel to what is desired and keeps it there:
// observe what is ours, compare, apply the difference, remember per object
// what failed and when to try again.
//
// A Table is one kind of object with its Driver. A Reconciler is a list of
// Tables in the order of their dependencies: additions and changes go in that
// order, and before all deletions, which go in the reverse order. It makes one
// pass per Step, in the caller's goroutine, with the caller's clock.
//
// # Contract
//
//   - A Table is closed at first: nothing of its kind is read or written. It
//     is opened when its owner knows what is desired.
//   - A pass costs what is pending. Only a resync reads the kernel: at start,
//     on a timer, when a notification contradicts what was observed last, and
//     after an operation whose outcome is not known, which is every one that
//     returned an error.
//   - An object that fails delays no other. It is tried again with a delay that
//     doubles up to a limit, for ever.
//   - An object that only awaits something (see Awaiting) is no failure: it is
//     pending, tried again likewise, and at once when Retry says so.
//   - An object may take others with it (a device its addresses, neighbours and
//     routes). A Table names the Tables that depend on it: after any operation
//     of its own they are read again before anything is applied to them.
//   - Done is done: what Status calls in sync was acknowledged by the kernel.
//
// It does not order operations within one kind, and does not undo: what is no
// longer desired is deleted like anything else that is ours.
package reconcile
