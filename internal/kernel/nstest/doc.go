// SPDX-License-Identifier: Apache-2.0

// Package nstest gives tests network namespaces of their own, and keeps the
// ledger of what a test run could not try on this kernel.
//
// A namespace is pinned by a file descriptor of the test process, never by a
// mount: whatever way the process ends, nothing stays behind. Its path,
// /proc/PID/fd/N, can be given to other processes while the test runs.
//
// A test that relies on a feature of the kernel says so by Need, which really
// tries it. A feature that every kernel for Weft's own tests must have fails
// the test when it is missing; another one skips it. Each outcome is a line in
// the file that the environment variable WEFT_TEST_LEDGER names:
//
//	LEDGER ran TestMasquerade6: kernel has ipv6 nat
//	LEDGER skipped TestMacsec: kernel lacks macsec
package nstest
