// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/facts"
	"weft.dev/weft/internal/core/ipam"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/core/wish"
	"weft.dev/weft/internal/engine"
	"weft.dev/weft/internal/leasing"
	"weft.dev/weft/internal/registry"
)

// addresses is the agent as the keeper sees it.
type addresses Agent

// Blocks implements leasing.Addresses.
func (s *addresses) Blocks(now time.Time) ([]lease.Block, error) {
	n, own, kept := s.network.Load(), s.ownBlocks(), *s.kept.Load()
	var blocks []lease.Block
	err := s.store.View(context.Background(), func(f *facts.Facts) error {
		u := f.Usage(facts.Veth, "")
		for _, set := range n.Pool.Sets {
			for _, r := range set {
				blocks = append(blocks, blockOf(u, r, kept, now, n.Cooldown))
			}
		}
		draining, err := s.draining(f, n.Pool, own)
		if err != nil {
			return err
		}
		for _, subnet := range draining {
			r, err := ipam.NewRange(ipam.Range{Subnet: subnet})
			if err != nil {
				return err
			}
			blocks = append(blocks, blockOf(u, r, kept, now, n.Cooldown))
		}
		return nil
	})
	return blocks, err
}

// draining returns the blocks that give no address any more, and that pods have
// addresses of. An adopted pod's address has no subnet on record; that of this
// node's lease around it is meant. own are this node's blocks: with the journal
// in hand the Store is not asked, or two who hold one each would wait for the
// other's.
func (s *addresses) draining(f *facts.Facts, pool ipam.Pool, own []netip.Prefix) ([]netip.Prefix, error) {
	outside, err := engine.Outside(f, pool)
	if err != nil || len(outside) == 0 {
		return nil, err
	}
	var subnets []netip.Prefix
	kept := *s.kept.Load()
	for _, o := range outside {
		if _, alone := kept[o.Addr]; alone && o.Subnet.IsSingleIP() {
			continue // it has a lease of its own
		}
		if !o.Subnet.IsValid() {
			for _, b := range own {
				if b.Contains(o.Addr) {
					o.Subnet = b
				}
			}
		}
		if o.Subnet.IsValid() && !slices.Contains(subnets, o.Subnet) {
			subnets = append(subnets, o.Subnet)
		}
	}
	return subnets, nil
}

// ownBlocks returns the blocks that this node has leases of.
func (s *addresses) ownBlocks() (own []netip.Prefix) {
	s.cluster.objects.View(func(state *registry.State) {
		for _, l := range state.Leases {
			if l.Node == s.cluster.node && l.Pod == "" {
				own = append(own, l.Subnet)
			}
		}
	})
	return own
}

// blockOf describes a block. What is kept for pods is not free: a node whose
// block is full of such addresses needs another one. What cools down is what is
// kept, or the other way round, as a rule.
func blockOf(u *ipam.Usage, r ipam.Range, kept wish.Holders, now time.Time, cooldown time.Duration) lease.Block {
	st := u.Stats(ipam.Set{r}, now.UnixNano(), int64(cooldown))
	b := lease.Block{Subnet: r.Subnet, Size: st.Total, Free: st.Free - min(st.Free, max(uint64(st.Cooling), keptFree(u, r, kept)))}
	if st.Used+st.Foreign > 0 {
		return b
	}
	b.IdleSince = 1
	for addr, at := range u.Released {
		if r.Subnet.Contains(addr) {
			b.IdleSince = max(b.IdleSince, at)
		}
	}
	return b
}

// keptFree counts the addresses of a range that are kept for pods and that
// nobody uses: to IPAM they are free, and it gives them to nobody else.
func keptFree(u *ipam.Usage, r ipam.Range, kept wish.Holders) (n uint64) {
	for addr := range kept {
		if isKeptFree(u, r, addr) {
			n++
		}
	}
	return n
}

func isKeptFree(u *ipam.Usage, r ipam.Range, addr netip.Addr) bool {
	if !r.Contains(addr) {
		return false
	}
	_, used := u.Owner(addr)
	return !used
}

// Serve implements leasing.Addresses. The blocks to be dropped are out of
// reach for every ADD first (see notGranted); whether one is in use is then
// looked up in a transaction, so that no ADD is in between.
func (s *addresses) Serve(ctx context.Context, leases []cluster.Lease) error {
	a := (*Agent)(s)
	a.inputs.served, a.inputs.decided = slices.Clone(leases), true
	// Which addresses of a new block are kept for pods has become known with its
	// lease, in this very pass (see registry.Leases).
	a.cluster.objects.View(a.readHolders)
	if err := a.apply(ctx); err != nil {
		return err
	}
	var used []string
	own := s.ownBlocks()
	err := a.store.View(ctx, func(f *facts.Facts) error {
		draining, err := s.draining(f, a.network.Load().Pool, own)
		for _, subnet := range draining {
			used = append(used, subnet.String())
		}
		return err
	})
	if err == nil && len(used) > 0 {
		err = fmt.Errorf("drop %s: %w", strings.Join(used, ", "), leasing.ErrInUse)
	}
	return err
}
