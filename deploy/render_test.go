// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/test/apiserver"
)

// rendered returns what the chart makes of values.
func rendered(t *testing.T, values ...string) (string, error) {
	t.Helper()
	var args []string
	for _, v := range values {
		args = append(args, "--set-json", v)
	}
	return renderedWith(t, args...)
}

// renderedWith returns what the chart becomes by some arguments of helm.
func renderedWith(t *testing.T, args ...string) (string, error) {
	t.Helper()
	args = append([]string{"template", "weft", "chart", "--namespace", "kube-system"}, args...)
	cmd := exec.Command(apiserver.Binary(t, "helm", "helm"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return stderr.String(), err
	}
	return string(out), nil
}

func TestManifestsAreThoseOfTheChart(t *testing.T) {
	apiserver.Binary(t, "helm", "helm") // or render.sh would build it now
	for mode, file := range map[string]string{"install": "weft.yaml", "uninstall": "weft-uninstall.yaml"} {
		want, err := exec.Command("./render.sh", mode).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not what the chart renders: run make generate (-want +got):\n%s", file, diff)
		}
	}
}

// Whatever values are set, what is rendered holds together.
func TestValues(t *testing.T) {
	cases := map[string]struct {
		values []string
		want   []string // in what is rendered
	}{
		"image":          {[]string{`image={"repository":"registry.example/weft","tag":"v9"}`}, []string{"image: registry.example/weft:v9"}},
		"loopback only":  {[]string{`listen={"address":"127.0.0.2","port":9200}`}, []string{"listen: 127.0.0.2:9200", `host: "127.0.0.2", port: 9200`}},
		"loopback IPv6":  {[]string{`listen.address="[::1]"`}, []string{"listen: '[::1]:9119'", `host: "::1", port: 9119`}},
		"any IPv6":       {[]string{`listen.address="::"`}, []string{"listen: '[::]:9119'", `host: "127.0.0.1", port: 9119`}},
		"any IPv6 []":    {[]string{`listen.address="[::]"`}, []string{"listen: '[::]:9119'", `host: "127.0.0.1", port: 9119`}},
		"one IPv6":       {[]string{`listen.address="fd00::1"`}, []string{"listen: '[fd00::1]:9119'", `host: "fd00::1", port: 9119`}},
		"any IPv4":       {[]string{`listen.address="0.0.0.0"`}, []string{"listen: 0.0.0.0:9119", `host: "127.0.0.1", port: 9119`}},
		"other runtime":  {[]string{`cni={"confDir":"/var/lib/k/net.d","confFile":"00-w.conflist","binDir":"/var/lib/k/bin"}`}, []string{"confFile: /var/lib/k/net.d/00-w.conflist"}},
		"state":          {[]string{`stateDir="/run/pods/weft"`}, []string{"stateDir: /run/pods/weft"}},
		"dual-stack":     {[]string{`pool.spec.ipv6={"cidr":"fd00:42::/48"}`}, []string{"cidr: fd00:42::/48"}},
		"no pool":        {[]string{`pool.create=false`}, nil},
		"no pool at all": {[]string{`pool={"create":false,"spec":{"ipv4":null}}`}, nil},
		"IPv6 only":      {[]string{`pool.spec={"ipv4":null,"ipv6":{"cidr":"fd00:42::/48"}}`}, []string{"cidr: fd00:42::/48"}},
		"pool in config": {[]string{`pool.create=false`, `config.cluster.initialPool={"ipv4":{"cidr":"10.9.0.0/16"}}`}, []string{"cidr: 10.9.0.0/16"}},
		"nothing traced": {[]string{`config.tracing=null`, `config.network.mtu=0`, `config.log.level=""`}, nil},
		"configuration":  {[]string{`config.network.mtu=1400`, `config.tracing={"endpoint":"http://c:4318"}`, `config.cni={"networkName":"pods"}`}, []string{"mtu: 1400", "networkName: pods"}},
		"API server":     {[]string{`config.cluster.kubernetes.server="https://192.0.2.1:6443"`}, []string{"server: https://192.0.2.1:6443"}},
		"pod":            {[]string{`seLinuxOptions={"type":"spc_t"}`, `podAnnotations={"a":"b"}`, `affinity={"nodeAffinity":{}}`, `imagePullSecrets=[{"name":"s"}]`}, []string{"type: spc_t"}},
		"uninstall":      {[]string{`uninstall={"enabled":true,"force":true,"wait":"90s"}`}, []string{"- --force", "- --wait=90s"}},
		"uninstall else": {[]string{`uninstall.enabled=true`, `stateDir="/run/pods/weft"`, `cni.binDir="/var/lib/k/bin"`}, []string{"- --state-dir=/run/pods/weft", "mountPath: /run/pods,"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := rendered(t, c.values...)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in what is rendered:\n%s", want, out)
				}
			}
			check(t, parse(t, out))
		})
	}
}

// An upgrade replaces the agents if something changes that they read at their
// start only, and leaves those alone that follow the change.
func TestUpgradeReplacesAgents(t *testing.T) {
	before := agents(t)
	for value, want := range map[string]bool{
		`config.network.mtu=1400`:                          false,
		`config.network.backend.type="vxlan"`:              false,
		`config.log.level="debug"`:                         false,
		`config.gc={"interval":"2m"}`:                      false,
		`config.cni={"networkName":"pods"}`:                false,
		`cni.confFile="00-weft.conflist"`:                  false,
		`config.log.format="text"`:                         true,
		`config.log=null`:                                  true,
		`config.socket="/run/weft/a.sock"`:                 true,
		`config.cluster.leaseIdleAfter="5m"`:               true,
		`config.cluster.kubernetes={"server":"https://a"}`: true,
		`config.tracing={"endpoint":"http://c:4318"}`:      true,
		`pool.spec.ipv4.blockSize=25`:                      true,
		`pool.create=false`:                                true,
		`listen.address="127.0.0.1"`:                       true,
		`stateDir="/run/pods/weft"`:                        true,
		`cni.confDir="/var/lib/k/net.d"`:                   true, // a mount
		`image={"repository":"registry.example/weft"}`:     true,
	} {
		if replaced := !cmp.Equal(before, agents(t, value)); replaced != want {
			t.Errorf("%s: agents are replaced: %t, want %t", value, replaced, want)
		}
	}
}

// agents returns the template of the agents' pods.
func agents(t *testing.T, values ...string) corev1.PodTemplateSpec {
	t.Helper()
	out, err := rendered(t, values...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return parse(t, out).daemonSets[0].Spec.Template
}

func TestValuesAreChecked(t *testing.T) {
	for value, want := range map[string]string{
		`imgae={"tag":"v9"}`:                                  "imgae",
		`listen.port=0`:                                       "port",
		`stateDir="/weft"`:                                    "stateDir",
		`stateDir="/run/my state"`:                            "stateDir",
		`cni.confFile="10-weft"`:                              "confFile",
		`config.nodeName="node2"`:                             "config.nodeName cannot be set: it would give all nodes one name",
		`config.stateDir="/run/x"`:                            "config.stateDir cannot be set: it is the value stateDir",
		`config.listen=":9119"`:                               "config.listen cannot be set",
		`config.cni={"confFile":"/etc/cni/net.d/x.conflist"}`: "config.cni.confFile cannot be set",
		`uninstall.wait="long"`:                               "wait",
		`uninstall.enabled="yes"`:                             "enabled",
		`image.pullPolicy="Maybe"`:                            "pullPolicy",

		`config.netwrok={"mtu":1400}`:                                                 "at '/config': additional properties 'netwrok' not allowed",
		`config.network.mtu=67`:                                                       "at '/config/network/mtu'",
		`config.network.mtu="1400"`:                                                   "at '/config/network/mtu': got string, want null or integer",
		`config.network.backend.type="bgp"`:                                           "at '/config/network/backend/type': value must be one of 'auto', 'vxlan', 'native'",
		`config.network.backend.vni=16777216`:                                         "at '/config/network/backend/vni'",
		`config.gc.interval=60`:                                                       "at '/config/gc/interval': got number, want null or string",
		`config.cluster.kubernetes.sever="https://a"`:                                 "at '/config/cluster/kubernetes': additional properties 'sever' not allowed",
		`config.cluster.initialPool.ipv4.blocksize=24`:                                "additional properties 'blocksize' not allowed",
		`config.tracing={"endpoint":"c:4318"}`:                                        "at '/config/tracing/endpoint'",
		`pool.spec.ipv4.blockSize=31`:                                                 "at '/pool/spec/ipv4/blockSize': maximum: got 31, want 30",
		`pool.spec.ipv4.cidr="fd00:42::/48"`:                                          "at '/pool/spec/ipv4/cidr'",
		`pool.spec.ipv6={"cidr":"fd00::/48","blockSize":0}`:                           "at '/pool/spec/ipv6/blockSize'",
		`pool.spec.ipv6={"blockSize":64}`:                                             "at '/pool/spec/ipv6': missing property 'cidr'",
		`pool.spec.ipv4=null`:                                                         "at '/pool/spec': missing property 'ipv6'",
		`pool.spec.reserved="10.42.0.0/28"`:                                           "at '/pool/spec/reserved': got string, want null or array",
		`pool.spec.nodeSelector={"matchExpressions":[{"key":"a","operator":"Like"}]}`: "at '/pool/spec/nodeSelector/matchExpressions/0/operator'",
	} {
		if out, err := rendered(t, value); err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, %s; want a refusal that names %s", value, err, out, want)
		}
	}
}
