// SPDX-License-Identifier: Apache-2.0

// Package drivertest judges drivers and stands in for them.
//
// Run is the contract of reconcile.Driver as a test. Every driver passes it, on
// the real kernel, and so does Fake, which has no kernel: what is proved with a
// Fake holds for the drivers as far as the contract goes.
//
// A Fake fails as told: an operation before or after it has happened, once, some
// times or always, and reading likewise.
//
// The package is for tests only.
package drivertest
