// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"weft.dev/weft/test/cluster"
)

// contender is a cluster with a network for its pods.
type contender struct {
	Name    string
	options cluster.Options
	// install brings the network, if that is done when the cluster is up.
	install func(ctx context.Context, c *contender) error
	// counts says that the agents' requests are counted.
	counts bool

	*cluster.Cluster
	node *cluster.Node
}

// auditPolicy makes the API server write down Weft's requests. Both clusters
// have it.
//
//go:embed audit.yaml
var auditPolicy []byte

// manifest is what a user applies, from the root of the repository.
const manifest = "deploy/weft.yaml"

func newWeft(dir, image string) *contender {
	return &contender{
		Name:    "weft",
		options: options(dir, "weft", image),
		counts:  true,
		install: func(ctx context.Context, c *contender) error {
			if _, err := c.Kubectl(ctx, "apply", "-f", manifest); err != nil {
				return err
			}
			return c.rolledOut(ctx, "daemonset/weft")
		},
	}
}

func newReference(dir string) *contender {
	c := &contender{Name: "ptp", options: options(dir, "ptp"), install: masquerade}
	c.options.CNI = installReference
	return c
}

func options(dir, name string, images ...string) cluster.Options {
	return cluster.Options{
		Dir:         filepath.Join(dir, name),
		Nodes:       1,
		Images:      images,
		AuditPolicy: filepath.Join(dir, "audit.yaml"),
		Log:         func(format string, args ...any) { progress(name+": "+format, args...) },
	}
}

// conflist of the reference plugins: what Weft gives a pod of one family, too.
const conflist = `{
  "cniVersion": "1.1.0",
  "name": "pods",
  "plugins": [{
    "type": "ptp",
    "ipam": {
      "type": "host-local",
      "ranges": [[{"subnet": "10.42.0.0/24"}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
`

func installReference(n *cluster.Node) error {
	build := exec.Command("test/refplugins/build.sh")
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		return fmt.Errorf("build the reference plugins: %w; run this at the root of the repository", err)
	}
	for _, name := range []string{"ptp", "host-local"} {
		program, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(n.BinDir, name), program, 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(n.ConfDir, "10-pods.conflist"), []byte(conflist), 0o644)
}

// masquerade gives pods a way out of the node by one rule for all, as Weft does.
// (By option ipMasq ptp adds rules for each pod, which takes it much longer.)
func masquerade(ctx context.Context, c *contender) error {
	const rules = `table ip pods {
	chain postrouting {
		type nat hook postrouting priority srcnat;
		ip saddr 10.42.0.0/16 ip daddr != 10.42.0.0/16 masquerade
	}
}`
	_, err := c.node.Exec(ctx, "nft", rules)
	return err
}

// up returns when pods can start and what the cluster itself runs has started.
func (c *contender) up(ctx context.Context) error {
	if err := os.WriteFile(c.options.AuditPolicy, auditPolicy, 0o644); err != nil {
		return err
	}
	var err error
	if c.Cluster, err = cluster.Up(ctx, c.options); err != nil {
		return err
	}
	c.node = c.Nodes[0]
	if c.install != nil {
		if err := c.install(ctx, c); err != nil {
			return err
		}
	}
	if _, err := c.Kubectl(ctx, "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s"); err != nil {
		return err
	}
	if err := c.rolledOut(ctx, "deployment/coredns"); err != nil {
		return err
	}
	return c.makeNamespace(ctx, benchNamespace)
}

func (c *contender) rolledOut(ctx context.Context, workload string) error {
	_, err := c.Kubectl(ctx, "-n", "kube-system", "rollout", "status", workload, "--timeout=120s")
	return err
}

// makeNamespace returns when pods can be created in it.
func (c *contender) makeNamespace(ctx context.Context, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.Client().CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	return await(ctx, 30*time.Second, "the service account of namespace "+name, func(ctx context.Context) error {
		_, err := c.Client().CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// down stops the cluster, if it is running.
func (c *contender) down() error {
	if c.Cluster == nil {
		return nil
	}
	err := c.Down()
	c.Cluster = nil
	return err
}

// await waits until check returns nil.
func await(ctx context.Context, limit time.Duration, what string, check func(ctx context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, limit, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s, %s at most: %w", what, limit, errors.Join(err, last))
	}
	return nil
}
