// SPDX-License-Identifier: Apache-2.0

// Package e2e has the tests on a real cluster: real API server, kubelets,
// containerd and kube-proxy of package cluster, Weft from the image and the
// manifests that users get.
//
// TestCluster makes one dual-stack cluster with kube-proxy in nftables mode,
// installs Weft with Helm as docs/install.md says, and runs the subtests of its
// table: first those that share the cluster, at the same time, then those that
// break something, one after the other, and the removal of Weft at last.
// TestIptables makes a second cluster, for kube-proxy's other mode, VXLAN, and an
// installation from the file of manifests. Every test begins with a comment that
// says what a user sees.
//
//	go test -v ./test/e2e -run 'TestCluster$/^(install|together)$/^(sticky_addresses|)$'
//
// runs one of them. What happened is kept if a test fails: the logs of all
// components and containers, and what each node knew, go to one directory, which
// the output names; $WEFT_E2E_LOGS says where it is made.
//
// It needs root and what package cluster needs. With -short nothing runs.
package e2e
