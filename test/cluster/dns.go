// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// dnsManifest is CoreDNS as a Deployment with its Service. It knows names of
// the cluster only.
//
//go:embed coredns.yaml
var dnsManifest string

// deployDNS creates CoreDNS. It stays Pending until there is a network.
func (c *Cluster) deployDNS(ctx context.Context) error {
	manifest := strings.NewReplacer(
		"IMAGE", ImageCoreDNS,
		"CLUSTER_IPS", c.family.list(func(i int) string { return `"` + c.family[i].dns + `"` }),
		"CLUSTER_IP", c.family[0].dns,
		"FAMILIES", c.family.list(func(i int) string { return c.family[i].is }),
		"POLICY", map[bool]string{false: "SingleStack", true: "RequireDualStack"}[len(c.family) > 1],
	).Replace(dnsManifest)
	if err := os.WriteFile(c.conf("coredns.yaml"), []byte(manifest), 0o644); err != nil {
		return fmt.Errorf("write manifest of CoreDNS: %w", err)
	}
	err := await(ctx, 30*time.Second, "namespace kube-system", func(ctx context.Context) error {
		_, err := c.client.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, "apply", "--validate=false", "-f", c.conf("coredns.yaml")); err != nil {
		return err
	}
	c.step("CoreDNS is deployed")
	return nil
}
