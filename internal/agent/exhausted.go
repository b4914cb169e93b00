// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"weft.dev/weft/internal/cni"
	"weft.dev/weft/internal/core/attach"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/registry"
)

// exhaustedError says in the words of Kubernetes that the node has no address
// left for a pod: IPAM knows ranges and attachments only.
type exhaustedError struct {
	node, pod string
	pools     []poolUse
	assigned  bool     // the blocks are the podCIDRs of the Node
	waiting   []string // why the node lacks blocks
	cause     *ipam.ExhaustedError
}

// exhaustedPoolError says that the node has no address left of the pool that a pod
// asks for.
type exhaustedPoolError struct {
	node, pool string
	use        []poolUse // of the node's blocks of it, in the families that are full
	claims     int       // AddressClaims that have addresses of the pool
	waiting    []string  // why the node lacks blocks, of all pools
}

// poolUse is how the node's blocks of one pool are used, in one family.
type poolUse struct {
	pool    string // "": podCIDRs
	blocks  ipam.Set
	used    int
	by      []usedBy // the largest first
	kept    int      // unused, and kept by claims
	keptFor string   // one of the pods that they are kept for
}

// usedBy counts the addresses of a namespace's pods.
type usedBy struct {
	namespace string
	count     int
	example   string // the pod that has the lowest
}

// How much an exhaustedError names: an Event has room for 1,024 bytes.
const (
	namedBlocks     = 4
	namedNamespaces = 3
)

func (e *exhaustedError) Unwrap() error { return e.cause }

func (e *exhaustedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s has no free address for pod %s: ", e.node, e.pod)
	kept := 0
	for i, p := range e.pools {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(p.String())
		kept += p.kept
	}
	switch {
	case len(e.waiting) > 0:
		fmt.Fprintf(&b, "; no other block: %s; delete pods, or add an IPPool", strings.Join(e.waiting, "; "))
	case e.assigned:
		b.WriteString("; no other block: the cluster assigns the blocks of this node; delete pods, or let them run on other nodes")
	default:
		b.WriteString("; another block is asked for, the next attempt may find it")
	}
	if kept > 0 {
		b.WriteString("; AddressClaims that are not needed can be deleted")
	}
	return b.String()
}

func (e *exhaustedPoolError) Error() string {
	use := []string{"it has no block of it"}
	if len(e.use) > 0 {
		use = nil
	}
	for _, u := range e.use {
		use = append(use, u.String())
	}
	why := "another one is asked for, the next attempt may find it"
	if lacks := aboutPool(e.waiting, e.pool); len(lacks) > 0 {
		why = "no other block: " + strings.Join(lacks, "; ")
	}
	advice := "delete pods that use the pool"
	if e.claims > 0 {
		advice = fmt.Sprintf("delete AddressClaims that are not needed (%d have addresses of the pool), or pods that use it", e.claims)
	}
	return fmt.Sprintf("node %s has no free address of IPPool %s: %s; %s; %s, or let the pod ask for another IPPool",
		e.node, e.pool, strings.Join(use, "; "), why, advice)
}

// aboutPool returns those of the texts that name the pool.
func aboutPool(texts []string, pool string) (about []string) {
	const inName = "abcdefghijklmnopqrstuvwxyz0123456789-."
	for _, text := range texts {
		for _, rest := range strings.Split(text, "IPPool "+pool)[1:] {
			if rest == "" || !strings.Contains(inName, rest[:1]) {
				about = append(about, text)
				break
			}
		}
	}
	return about
}

func (p poolUse) String() string {
	var b strings.Builder
	named := make([]string, 0, namedBlocks)
	for _, r := range p.blocks[:min(len(p.blocks), namedBlocks)] {
		named = append(named, r.Subnet.String())
	}
	b.WriteString("block")
	if len(p.blocks) > 1 {
		b.WriteString("s")
	}
	b.WriteString(" " + strings.Join(named, ", "))
	if more := len(p.blocks) - len(named); more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	if p.pool != "" {
		b.WriteString(" of IPPool " + p.pool)
	}
	fmt.Fprintf(&b, ": %d addresses, %d in use", p.blocks.Size(), p.used)
	separator := " ("
	for i, u := range p.by {
		if i == namedNamespaces {
			fmt.Fprintf(&b, "; and %d more namespaces", len(p.by)-i)
			break
		}
		fmt.Fprintf(&b, "%s%s %d, e.g. %s", separator, u.namespace, u.count, u.example)
		separator = "; "
	}
	if len(p.by) > 0 {
		b.WriteString(")")
	}
	if p.kept > 0 {
		fmt.Fprintf(&b, ", %d kept by AddressClaims (e.g. for pod %s)", p.kept, p.keptFor)
	}
	return b.String()
}

// explainExhausted says of a refusal for want of addresses which pools, blocks
// and pods it is about, where the registry knows such things.
func (e *errand) explainExhausted(cerr *cni.Error) *cni.Error {
	var cause *ipam.ExhaustedError
	if e.cluster == nil || e.cluster.pods == nil || !errors.As(cerr, &cause) {
		return cerr
	}
	err := &exhaustedError{node: e.cluster.node, pod: e.pod.Key(), waiting: e.cluster.keeper.Status().Waiting, cause: cause}
	uses, viewErr := e.use(cause.Set)
	if viewErr != nil {
		return cerr
	}
	err.pools = uses
	err.assigned = slices.ContainsFunc(uses, func(p poolUse) bool { return p.pool == "" })
	return &cni.Error{Code: cerr.Code, Msg: err.Error(), Err: err}
}

// exhaustedPool says how the pool that the pod asks for is used up; free is what
// each of the node's blocks of it has left.
func (e *errand) exhaustedPool(pool string, free map[netip.Prefix]uint64) error {
	seen := e.seen.Load()
	var blocks [2]ipam.Set // by family
	var left [2]uint64
	for _, l := range seen.served {
		if l.Pool != pool {
			continue
		}
		r, err := seen.rangeOf(l)
		if err != nil {
			return err
		}
		f := family(l.Subnet.Addr())
		blocks[f], left[f] = append(blocks[f], r), left[f]+free[l.Subnet]
	}
	lack := &exhaustedPoolError{node: e.cluster.node, pool: pool, waiting: e.cluster.keeper.Status().Waiting}
	for f, set := range blocks {
		if len(set) == 0 || left[f] > 0 {
			continue
		}
		use, err := e.use(set)
		if err != nil {
			return err
		}
		lack.use = append(lack.use, use...)
	}
	e.cluster.objects.View(func(s *registry.State) {
		for _, c := range s.Claims {
			if slices.ContainsFunc(c.Addresses, func(a netip.Addr) bool { return e.poolAround(a) == pool }) {
				lack.claims++
			}
		}
	})
	return lack
}

// use looks up how the blocks of a set are used, by pool.
func (e *errand) use(set ipam.Set) (uses []poolUse, err error) {
	served, kept := e.seen.Load().served, *e.kept.Load()
	// The caller's time may be over.
	err = e.store.View(context.WithoutCancel(e.ctx), func(f *facts.Facts) error {
		pools := map[string]*poolUse{}
		usage := f.Usage(facts.Veth, "")
		for _, r := range set {
			name := poolOfBlock(served, r)
			if pools[name] == nil {
				pools[name] = &poolUse{pool: name}
			}
			if err := pools[name].add(f, usage, r, kept); err != nil {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(pools)) {
			uses = append(uses, *pools[name])
		}
		return nil
	})
	return uses, err
}

// add counts the use of one block.
func (p *poolUse) add(f *facts.Facts, usage *ipam.Usage, r ipam.Range, kept wish.Holders) error {
	p.blocks = append(p.blocks, r)
	for addr, owner := range usage.Used {
		if !r.Contains(addr) {
			continue
		}
		k, err := attach.ParseKey(owner)
		if err != nil {
			return err
		}
		rec, _ := f.Get(k)
		d, err := rec.Detail()
		if err != nil {
			return err
		}
		p.take(d.Pod, k)
	}
	slices.SortFunc(p.by, func(a, b usedBy) int {
		return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.namespace, b.namespace))
	})
	for addr, pod := range kept {
		if !isKeptFree(usage, r, addr) {
			continue
		}
		if p.kept++; p.keptFor == "" || pod < p.keptFor {
			p.keptFor = pod
		}
	}
	return nil
}

func (p *poolUse) take(pod attach.Pod, k attach.Key) {
	p.used++
	u := usedBy{namespace: "namespace " + pod.Namespace, count: 1, example: "pod " + pod.String()}
	if pod.Name == "" {
		u.namespace, u.example = "pods without a name", k.String()
	}
	if i := slices.IndexFunc(p.by, func(b usedBy) bool { return b.namespace == u.namespace }); i >= 0 {
		p.by[i].count++
		return
	}
	p.by = append(p.by, u)
}
