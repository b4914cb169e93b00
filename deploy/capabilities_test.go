// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/delta"
	"weft.dev/weft/internal/core/topology"
	"weft.dev/weft/internal/install"
	"weft.dev/weft/internal/kernel"
	"weft.dev/weft/internal/kernel/nstest"
)

// The test runs itself twice over: in a process with mounts and a network of its
// own, and from there in one that has the rights of a container.
const (
	stage        = "WEFT_TEST_STAGE"
	capabilities = "WEFT_TEST_CAPABILITIES"
)

// sandboxPath leads to the namespace of the pod, as the shim hands it to the
// agent: an open descriptor.
const sandboxPath = "/proc/self/fd/3"

// The agent's capabilities are enough for what it does to the kernel, and each
// is needed.
func TestAgentCapabilities(t *testing.T) {
	switch os.Getenv(stage) {
	case "contain":
		contain(t)
	case "act":
		if err := actAsAgent(); err != nil {
			t.Fatal(err)
		}
	default:
		granted := manifest(t, "weft.yaml").daemonSets[0].Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add
		nstest.Need(t, "veth", "vxlan", "inet nat", "ipv6")
		if out, err := asAgent(t, join(granted)); err != nil {
			t.Errorf("with %v: %v:\n%s", granted, err, out)
		}
		for _, c := range granted {
			fewer := slices.DeleteFunc(slices.Clone(granted), func(other corev1.Capability) bool { return other == c })
			out, err := asAgent(t, join(fewer))
			if err == nil || !strings.Contains(out, "operation not permitted") && !strings.Contains(out, "read-only") {
				t.Errorf("without %s: %v; it is not needed:\n%s", c, err, out)
			}
		}
	}
}

func asAgent(t *testing.T, caps string) (string, error) {
	t.Helper()
	sandbox, err := os.Open(nstest.New(t).Path)
	if err != nil {
		t.Fatal(err)
	}
	defer sandbox.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestAgentCapabilities$", "-test.v")
	cmd.Env = append(os.Environ(), stage+"=contain", capabilities+"="+caps)
	cmd.ExtraFiles = []*os.File{sandbox}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// contain makes /proc/sys read-only, as runtimes do, and goes on with the
// capabilities of the container alone.
func contain(t *testing.T) {
	flags := uintptr(unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := errors.Join(unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, ""), unix.Mount("", "/proc/sys", "", flags, "")); err != nil {
		t.Fatal(err)
	}
	set := "-all"
	for _, c := range strings.Fields(os.Getenv(capabilities)) {
		set += ",+" + strings.ToLower(c)
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(stage, "act")
	err = unix.Exec(setpriv, []string{
		"setpriv", "--bounding-set=" + set, "--inh-caps=-all", "--no-new-privs", self, "-test.run=^TestAgentCapabilities$", "-test.v",
	}, os.Environ())
	t.Fatal(err)
}

// actAsAgent makes one object of each kind.
func actAsAgent() error {
	if err := install.WritableSysctls(); err != nil {
		return err
	}
	k, err := kernel.Open()
	if err != nil {
		return err
	}
	defer k.Close()
	subnets := []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("fd00:42::/64")}
	gateway := netip.MustParseAddr("10.42.0.1")
	if err := k.EnsureNode(kernel.Node{Gateways: []netip.Addr{gateway}, Table: "weft", Sources: subnets, Pools: subnets, IPv4: true, IPv6: true}); err != nil {
		return err
	}
	link := topology.Link{VNI: 119, Port: 4789, Local: netip.MustParseAddr("127.0.0.1"), MAC: attach.MAC{0x9a, 0, 0, 0, 0, 1}, MTU: 1450}
	errs := k.VXLANLinks("/run/weft").Apply([]delta.Op[topology.LinkKey, topology.Link]{{Key: topology.VXLANDevice4, Want: link}})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ns, err := kernel.OpenNetns(sandboxPath)
	if err != nil {
		return err
	}
	defer ns.Close()
	plan, err := attach.NewPlan(attach.Spec{
		Key: attach.Key{Network: "weft", ContainerID: "c", Ifname: "eth0"}, Instance: "/run/weft", MTU: 1450,
		Addresses: []attach.Address{{Addr: netip.MustParseAddr("10.42.0.9"), Gateway: gateway, Subnet: subnets[0]}},
		Sysctls:   []attach.Sysctl{{Key: "net.ipv4.conf.eth0.arp_notify", Value: "1"}},
	})
	if err != nil {
		return err
	}
	if err := k.Attach(ns, plan); err != nil {
		return err
	}
	return k.Detach(plan.HostIfname)
}
