// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

// network is a contender that libcni calls.
type network struct {
	name string
	conf []byte // network configuration list
	list *libcni.NetworkConfigList
	held func() (int, error)

	path  []string // where plugins are
	cache string   // libcni's
	agent *agent   // nil: none serves it
}

// object is a JSON object.
type object map[string]any

// newNetwork takes the configuration of its one plugin.
func newNetwork(name string, plugin object, p places, held func() (int, error)) (*network, error) {
	raw, err := json.Marshal(object{"cniVersion": "1.1.0", "name": networkName(name), "plugins": []object{plugin}})
	if err != nil {
		return nil, err
	}
	list, err := libcni.NetworkConfFromBytes(raw)
	if err != nil {
		return nil, fmt.Errorf("contender %s: %w", name, err)
	}
	return &network{
		name: name, conf: raw, list: list, held: held,
		path: []string{p.Weft, p.Ref}, cache: p.run() + "/cache/" + name,
	}, nil
}

func networkName(contender string) string { return "net-" + contender }

func (n *network) Name() string       { return n.name }
func (n *network) Held() (int, error) { return n.held() }

// runtimeConf names the pod as containerd does.
func runtimeConf(s *sandbox, container string) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: container, NetNS: s.Path, IfName: ifname,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", "bench"},
			{"K8S_POD_NAME", "pod-" + container},
			{"K8S_POD_INFRA_CONTAINER_ID", container},
		},
	}
}

func (n *network) Attach(ctx context.Context, s *sandbox, container string) (sample, error) {
	return n.call("ADD", container, func(cni *libcni.CNIConfig) error {
		result, err := cni.AddNetworkList(ctx, n.list, runtimeConf(s, container))
		if err != nil {
			return err
		}
		r, err := types100.NewResultFromResult(result)
		if err == nil && len(r.IPs) != 1 {
			err = fmt.Errorf("result has %d addresses, want 1", len(r.IPs))
		}
		return err
	})
}

func (n *network) Detach(ctx context.Context, s *sandbox, container string) (sample, error) {
	return n.call("DEL", container, func(cni *libcni.CNIConfig) error {
		return cni.DelNetworkList(ctx, n.list, runtimeConf(s, container))
	})
}

// call times one call of libcni and takes it apart.
func (n *network) call(verb, container string, f func(*libcni.CNIConfig) error) (sample, error) {
	watch := newWatch()
	cni := libcni.NewCNIConfigWithCacheDir(n.path, n.cache, watch)
	start := time.Now()
	err := f(cni)
	m := sample{Total: millis(time.Since(start)), Exec: millis(watch.took), Plugin: watch.plugin()}
	if err != nil {
		return m, fmt.Errorf("%s: %s %s: %w", n.name, verb, container, err)
	}
	if n.agent != nil {
		m.Agent, err = n.agent.took(verb, container)
	}
	return m, err
}

// status asks whether the network is ready: start of the plugin, its
// configuration, its journal or its socket, and nothing of the kernel.
func (n *network) status(ctx context.Context) error {
	return libcni.NewCNIConfigWithCacheDir(n.path, n.cache, newWatch()).GetStatusNetworkList(ctx, n.list)
}

// watch executes plugins as libcni does and takes the time.
type watch struct {
	invoke.RawExec
	version.PluginDecoder
	stderr bytes.Buffer
	took   time.Duration
}

func newWatch() *watch {
	w := &watch{}
	w.Stderr = &w.stderr
	return w
}

// ExecPlugin implements invoke.Exec.
func (w *watch) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	start := time.Now()
	out, err := w.RawExec.ExecPlugin(ctx, path, stdin, env)
	w.took = time.Since(start)
	return out, err
}

var logMillis = regexp.MustCompile(`weft-cni verb=\S+ .*\bms=([0-9.]+)`)

// plugin returns what the log line of weft-cni says, 0 for other plugins.
func (w *watch) plugin() float64 {
	found := logMillis.FindSubmatch(w.stderr.Bytes())
	if found == nil {
		return 0
	}
	ms, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return 0
	}
	return ms
}
