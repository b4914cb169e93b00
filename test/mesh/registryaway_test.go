// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"crypto/sha256"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

func registryAway(m *mesh) {
	flows := append(m.flows("p1", "p2"), m.flows("p1", "p3")...)
	m.must(os.Rename(m.path("registry"), m.path("away")))
	for _, n := range m.nodeNames() {
		m.problem(n, "registry", "unreachable", "what is known stays in use")
	}
	m.kill("node1")
	m.restart("node1")
	m.addPod("q1", "node1") // it has started without registry
	m.addPod("q2", "node2")
	m.eventually("packets without registry", bound, m.checkPairs)
	// What a volume looks like that is not mounted.
	m.must(os.Mkdir(m.path("registry"), 0o755))
	for _, n := range m.nodeNames() {
		m.problem(n, "registry", "unreachable")
	}
	m.eventually("packets with an empty registry", bound, m.checkPairs)
	m.must(os.RemoveAll(m.path("registry")))
	m.must(os.Rename(m.path("away"), m.path("registry")))
	m.lossless("registry away", nil, flows...)
	m.converged("the registry came back")
	m.deletePod("q1")
	m.deletePod("q2")
}

// lostLeases deletes leases behind their nodes' backs: one whose block has a
// pod, and then one whose agent is down.
func lostLeases(m *mesh) {
	name := func(p netip.Prefix) string {
		return strings.NewReplacer(".", "-", "/", "-").Replace(p.String())
	}
	flows := m.flows("p2", "p3")
	one := m.leaseOf("node1", true)
	m.loseLease(name(one))
	m.holds("node1", 2)
	m.converged("a lease was deleted")
	if now := m.leaseOf("node1", true); now != one {
		m.Errorf("node1 held %s, and holds %s now, though its pods have addresses of the former", one, now)
	}
	m.kill("node1")
	m.loseLease(name(m.leaseOf("node1", true)))
	m.restart("node1")
	m.eventually("the lease is claimed again", bound, func() error {
		_, err := os.Stat(m.path("registry", "subnetleases", name(one)+".yaml"))
		return err
	})
	m.converged("a lease was deleted while its agent was down")
	m.holds("node1", 2)
	m.lossless("leases of another node are deleted", nil, flows...)
}

// litter is a file in the registry that should not be there.
type litter struct {
	file, text string
	object     string // that is rejected; "": nothing is
	reason     string // a part of it
	lease      string // its name, if it is one
}

// scatter puts litter into the registry and has the network converge; then it
// is removed again.
func (m *mesh) scatter(what string, all ...litter) {
	m.Helper()
	for _, one := range all {
		file := m.path("registry", one.file)
		m.must(os.MkdirAll(filepath.Dir(file), 0o755))
		if one.object != "" {
			m.rejected[one.object] = one.reason
		}
		if one.lease != "" {
			m.refused[one.lease] = true
		}
		m.must(os.WriteFile(file, []byte(one.text), 0o644))
	}
	m.converged(what + " in the registry")
	m.addPod("q1", "node1")
	for range 3 {
		for _, n := range m.nodeNames() {
			m.bounce(n)
		}
		m.converged("agents started with " + what + " in the registry")
	}
	for _, one := range all {
		m.must(os.Remove(m.path("registry", one.file)))
		delete(m.rejected, one.object)
		delete(m.refused, one.lease)
	}
	m.deletePod("q1")
	m.converged(what + " went")
}

// absent is a node of which there is nothing but the object.
var absent = litter{file: "nodes/absent.yaml", text: "apiVersion: v1\nkind: Node\nmetadata: {name: absent, uid: absent}\n"}

// refusedLease is the manifest of a lease that no node may follow.
func refusedLease(subnet, node, reason string) litter {
	name := strings.NewReplacer(".", "-", "/", "-").Replace(subnet)
	return litter{
		file: "subnetleases/" + name + ".yaml", text: leaseText(name, subnet, node, "198.18.1.99"),
		object: "SubnetLease " + name, reason: reason, lease: name,
	}
}

func garbage(m *mesh) {
	noise := sha256.Sum256([]byte("noise"))
	torn, misnamed := refusedLease("10.42.66.0/24", "absent", ""), refusedLease("10.42.88.0/24", "absent", "")
	torn.text, torn.object = torn.text[:170], "file "+torn.file
	misnamed.text = strings.ReplaceAll(misnamed.text, "name: 10-42-88-0-24", "name: 10-42-89-0-24")
	misnamed.object, misnamed.reason = "file "+misnamed.file, "10-42-89-0-24"
	m.scatter("garbage", absent, torn, misnamed,
		litter{file: "noise.yaml", text: string(noise[:]), object: "file noise.yaml"},
		litter{file: "torn.yaml", text: "apiVersion: v1\nkind: Node\nmetadata: {name: node9, uid: \"unfin", object: "file torn.yaml"},
		litter{file: "settings.yaml", text: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"},
		litter{file: "README", text: "not ours"},
		litter{file: "deep/deeper/node8.yaml", text: "apiVersion: v1\nkind: Node\nmetadata: {name: node8}\n"},
		refusedLease("10.42.77.0/24", "ghost", "Node ghost is not known"),
		refusedLease("0.0.0.0/0", "absent", "the whole address space"),
		refusedLease(m.leaseOf("node1", true).Addr().String()+"/25", "absent", "overlaps"),
		refusedLease("10.42.0.0/17", "absent", "overlaps"),
		litter{file: "over.yaml", text: poolText("over", 98, "ipv4: {cidr: 10.42.128.0/17}"), object: "IPPool over", reason: "overlaps 10.42.0.0/16 of IPPool default"},
		litter{file: "small.yaml", text: poolText("small", 98, "ipv4: {cidr: 10.99.0.0/26, blockSize: 24}"), object: "IPPool small", reason: "larger than the range"},
	)
}

// leaseFromTheFuture has a time stamp that nanoseconds in 64 bits cannot tell.
func leaseFromTheFuture(m *mesh) {
	l := refusedLease(m.leaseOf("node1", true).Addr().String()+"/26", "absent", "")
	l.text = strings.Replace(l.text, "2099", "2999", 1)
	m.scatter("a lease from the future", absent, l)
}

// leaseOfTheUnderlay would lead the traffic between the nodes into pods. A
// node must refuse it, and leaseOfASegment, whether it is itself in such a network or only peers
// are.
func leaseOfTheUnderlay(m *mesh) {
	m.scatter("a lease of all of the network between the nodes", absent, refusedLease("198.18.0.0/16", "absent", "its own node's address"))
}

func leaseOfASegment(m *mesh) {
	l := refusedLease("198.18.1.0/24", "absent", "")
	l.text = strings.Replace(l.text, "198.18.1.99", "198.18.2.99", 1)
	m.scatter("a lease of one segment", absent, l)
}
