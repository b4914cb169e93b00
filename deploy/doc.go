// SPDX-License-Identifier: Apache-2.0

// Package deploy holds what installs Weft in a cluster: the Helm chart, and the
// manifests that are rendered from it. It has no code but the tests that hold
// chart, manifests and program together: manifests are what the chart renders,
// every option exists, every configuration is one that the agent takes, and no
// container may do more than is listed. What Weft would refuse is refused at the
// door: objects by the rules of the definitions (made from the markers in
// api/v1alpha1), values of the chart by values.schema.json (written by hand).
// Tests hold both against the program, with a real API server and a real Helm.
package deploy
