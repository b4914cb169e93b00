// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"net"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"weft.dev/weft/api/v1alpha1"
	"weft.dev/weft/internal/cli"
)

// objects are those of one manifest.
type objects struct {
	accounts   []corev1.ServiceAccount
	configs    []corev1.ConfigMap
	roles      []rbacv1.ClusterRole
	bindings   []rbacv1.ClusterRoleBinding
	daemonSets []appsv1.DaemonSet
	crds       []string
}

// decode reads an object strictly: an unknown key is a mistake.
func decode[T any](t *testing.T, raw string, list *[]T) {
	t.Helper()
	var o T
	if err := yaml.UnmarshalStrict([]byte(raw), &o); err != nil {
		t.Fatalf("%v:\n%s", err, raw)
	}
	*list = append(*list, o)
}

func parse(t *testing.T, manifest string) (o objects) {
	t.Helper()
	for _, raw := range strings.Split(manifest, "\n---\n") {
		var m struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`
		}
		if err := yaml.Unmarshal([]byte(raw), &m); err != nil {
			t.Fatalf("%v:\n%s", err, raw)
		}
		switch m.Kind {
		case "":
		case "ServiceAccount":
			decode(t, raw, &o.accounts)
		case "ConfigMap":
			decode(t, raw, &o.configs)
		case "ClusterRole":
			decode(t, raw, &o.roles)
		case "ClusterRoleBinding":
			decode(t, raw, &o.bindings)
		case "DaemonSet":
			decode(t, raw, &o.daemonSets)
		case "CustomResourceDefinition":
			o.crds = append(o.crds, m.Name)
		default:
			t.Fatalf("%s %s: no check for this kind", m.Kind, m.Name)
		}
	}
	return o
}

func manifest(t *testing.T, file string) objects {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(raw))
}

// check is what holds for every manifest.
func check(t *testing.T, o objects) {
	t.Helper()
	if len(o.daemonSets) != 1 || len(o.accounts) != 1 {
		t.Fatalf("%d DaemonSets, %d ServiceAccounts; want one of each", len(o.daemonSets), len(o.accounts))
	}
	d := o.daemonSets[0]
	if d.Namespace != o.accounts[0].Namespace || d.Spec.Template.Spec.ServiceAccountName != o.accounts[0].Name {
		t.Errorf("the DaemonSet uses ServiceAccount %q, which is not in the manifest", d.Spec.Template.Spec.ServiceAccountName)
	}
	for k, v := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[k] != v {
			t.Errorf("the DaemonSet selects %s=%s, which its pods do not have", k, v)
		}
	}
	for _, c := range containers(d) {
		checkContainer(t, d.Spec.Template.Spec, c)
	}
	if d.Name == "weft" {
		checkAgent(t, o)
	}
}

func containers(d appsv1.DaemonSet) []corev1.Container {
	return slices.Concat(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers)
}

// checkContainer sees that the program understands the arguments, and that every
// path in them is on a volume that is there.
func checkContainer(t *testing.T, pod corev1.PodSpec, c corev1.Container) {
	t.Helper()
	command, rest, err := cli.New("test").Find(c.Args)
	if err == nil {
		err = command.ParseFlags(rest)
	}
	if err != nil || command.Name() != c.Args[0] {
		t.Fatalf("container %s: %v: %v", c.Name, c.Args, err)
	}
	for _, m := range c.VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("container %s mounts volume %s, which the pod has not", c.Name, m.Name)
		}
	}
	for _, name := range []string{"bin-dir", "conf-file", "state-dir", "config"} {
		f := command.Flags().Lookup(name)
		if f == nil || !f.Changed {
			continue
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return strings.HasPrefix(f.Value.String()+"/", m.MountPath+"/") || path.Dir(f.Value.String()) == m.MountPath
		}) {
			t.Errorf("container %s: --%s %s is not on a volume", c.Name, name, f.Value)
		}
	}
}

// checkAgent sees that the agent takes its configuration, and that the pod fits
// it.
func checkAgent(t *testing.T, o objects) {
	t.Helper()
	t.Setenv("NODE_NAME", "node1")
	if len(o.configs) != 1 {
		t.Fatalf("%d ConfigMaps, want one", len(o.configs))
	}
	c, err := v1alpha1.ParseAgentConfiguration([]byte(o.configs[0].Data["agent.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	if c.Cluster == nil || c.Cluster.Kubernetes == nil || c.NodeName != "node1" {
		t.Errorf("cluster %+v of node %q; want Kubernetes, and the node's name from the environment", c.Cluster, c.NodeName)
	}
	pod := o.daemonSets[0].Spec.Template.Spec
	agent := pod.Containers[0]
	for _, want := range []string{c.StateDir, path.Dir(c.CNI.ConfFile)} {
		at := slices.IndexFunc(agent.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == want })
		if at < 0 {
			t.Errorf("%s is not mounted", want)
			continue
		}
		v := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == agent.VolumeMounts[at].Name })]
		// What the agent tells the runtime is true on the node, too.
		if v.HostPath == nil || v.HostPath.Path != want {
			t.Errorf("%s is not the same directory on the node", want)
		}
	}
	_, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		t.Fatal(err)
	}
	for what, p := range map[string]*corev1.Probe{"startup": agent.StartupProbe, "liveness": agent.LivenessProbe, "readiness": agent.ReadinessProbe} {
		if p == nil || p.HTTPGet.Port.String() != port || p.HTTPGet.Host == "" {
			t.Errorf("%s probe %+v; the agent listens on %s", what, p, c.Listen)
		}
	}
	if o.bindings[0].RoleRef.Name != o.roles[0].Name || o.bindings[0].Subjects[0].Name != o.accounts[0].Name {
		t.Errorf("binding %+v binds other objects", o.bindings[0])
	}
}

func TestManifests(t *testing.T) {
	o := manifest(t, "weft.yaml")
	check(t, o)
	if want := []string{"addressclaims.weft.dev", "ippools.weft.dev", "subnetleases.weft.dev"}; !cmp.Equal(want, o.crds) {
		t.Errorf("definitions %v, want %v", o.crds, want)
	}
	u := manifest(t, "weft-uninstall.yaml")
	check(t, u)
	if len(u.crds)+len(u.roles)+len(u.configs) > 0 || u.daemonSets[0].Name == o.daemonSets[0].Name {
		t.Errorf("the manifest for uninstalling has more than it needs: %+v", u)
	}
}

// What containers may do. Whoever adds something here explains it in
// docs/install.md.
func TestSecurity(t *testing.T) {
	want := map[string]string{
		"install":   "drop ALL",
		"agent":     "drop ALL add NET_ADMIN SYS_ADMIN, AppArmor Unconfined",
		"uninstall": "drop ALL add NET_ADMIN",
		"done":      "drop ALL add NET_ADMIN",
	}
	got := map[string]string{}
	for _, file := range []string{"weft.yaml", "weft-uninstall.yaml"} {
		d := manifest(t, file).daemonSets[0]
		pod := d.Spec.Template.Spec
		if !pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.SecurityContext.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: hostNetwork %v, hostPID %v, hostIPC %v, seccomp %v", file, pod.HostNetwork, pod.HostPID, pod.HostIPC, pod.SecurityContext.SeccompProfile)
		}
		for _, c := range containers(d) {
			got[c.Name] = rights(t, c)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights of containers (-want +got):\n%s", diff)
	}
}

func rights(t *testing.T, c corev1.Container) string {
	t.Helper()
	s := c.SecurityContext
	if s == nil || *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || s.SeccompProfile != nil {
		t.Errorf("container %s: security context %+v", c.Name, s)
	}
	words := fmt.Sprintf("drop %s", join(s.Capabilities.Drop))
	if len(s.Capabilities.Add) > 0 {
		words += " add " + join(s.Capabilities.Add)
	}
	if s.AppArmorProfile != nil {
		words += ", AppArmor " + string(s.AppArmorProfile.Type)
	}
	return words
}

func join(list []corev1.Capability) string {
	var words []string
	for _, c := range list {
		words = append(words, string(c))
	}
	return strings.Join(words, " ")
}

// The role is the one with which the agent's requests are tested.
func TestRole(t *testing.T) {
	raw, err := os.ReadFile("../internal/registry/kubernetes/testdata/clusterrole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tested []rbacv1.ClusterRole
	decode(t, string(raw), &tested)
	if diff := cmp.Diff(permissions(tested[0]), permissions(manifest(t, "weft.yaml").roles[0])); diff != "" {
		t.Errorf("permissions (-tested +chart):\n%s", diff)
	}
}

// permissions lists a role as "verb resource.group", sorted.
func permissions(role rbacv1.ClusterRole) (list []string) {
	for _, r := range role.Rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					list = append(list, strings.TrimSuffix(verb+" "+resource+"."+group, "."))
				}
			}
		}
	}
	slices.Sort(list)
	return list
}
