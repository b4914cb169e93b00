// SPDX-License-Identifier: Apache-2.0

// Package apiserver runs a real etcd and a real kube-apiserver for tests, on
// free ports of 127.0.0.1.
//
// The binaries are those of test/components, in the cache. Where they are
// missing, Start skips the test and says how to make them; with
// WEFT_COMPONENTS=required in the environment it fails instead.
//
// There is no controller manager, no scheduler and no kubelet: nodes and pods
// are what the test creates, and nothing is deleted because its owner is.
// Service accounts are not needed for pods.
//
// Processes end with the test, and with the test's process however that ends.
package apiserver
