// SPDX-License-Identifier: Apache-2.0

package leasing

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"weft.dev/weft/internal/core/cluster"
	"weft.dev/weft/internal/core/lease"
	"weft.dev/weft/internal/registry"
)

// pass is one pass of a Keeper and what came of it.
type pass struct {
	*Keeper
	now        time.Time
	demand     []string // pools, by name
	waiting    []string
	due        int64 // when time alone calls for the next pass, Unix nanoseconds; 0: never
	errs       []error
	unfinished bool // something is left that another pass may do at once
}

// run decides and carries out until nothing new comes of it.
func (p *pass) run(ctx context.Context) {
	reachable := p.view.err == nil && !p.now.Before(p.resume)
	if p.started == 0 {
		p.started = p.now.UnixNano()
	}
	p.demand = p.Keeper.demand(p.now)
	for range maxRounds {
		blocks, err := p.blocks()
		if err != nil {
			p.fail("read the use of addresses", err)
			return
		}
		d := lease.Decide(p.input(blocks, reachable && len(p.errs) == 0))
		p.waiting, p.due = d.Waiting, d.Next
		if !p.serve(ctx, d.Serve, blocks) {
			return
		}
		p.unfinished = false
		p.claim(ctx, d.Claim)
		p.replace(ctx, d.Update)
		p.release(ctx, d.Release)
		if !p.unfinished {
			break
		}
	}
	if reachable && len(p.errs) == 0 {
		p.deleteAgain(ctx)
	}
}

func (p *pass) input(blocks []lease.Block, reachable bool) lease.Input {
	id := p.identity()
	return lease.Input{
		Now: p.now.UnixNano(), Started: p.started, Node: p.view.node, Name: p.config.Node,
		Pools: p.view.pools, Leases: p.view.leases, Rejected: p.rejected(), Reachable: reachable,
		Nodes: p.view.nodes, Networks: id.Networks,
		Blocks: blocks, Previous: p.previous, Released: p.view.released, Taken: p.writes.subnets(taken),
		Demand: p.demand, Addresses: id.Addresses, VTEP: id.VTEP, IdleAfter: p.config.IdleAfter.Nanoseconds(),
	}
}

// blocks returns the blocks that IPAM knows. No block is a single address: what
// is, is a pod's lease, and not for a Keeper to serve or to give back.
func (p *pass) blocks() ([]lease.Block, error) {
	blocks, err := p.addresses.Blocks(p.now)
	return slices.DeleteFunc(blocks, func(b lease.Block) bool { return b.Subnet.IsSingleIP() }), err
}

func (p *pass) fail(what string, err error) { p.errs = append(p.errs, fmt.Errorf("%s: %w", what, err)) }

// serve tells IPAM what to give addresses from, if that is not what it does.
func (p *pass) serve(ctx context.Context, leases []cluster.Lease, blocks []lease.Block) (ok bool) {
	same := p.accepted && slices.EqualFunc(leases, p.served, func(a, b cluster.Lease) bool {
		return a.Subnet == b.Subnet && a.Pool == b.Pool
	})
	if same && len(blocks) == len(leases) && !slices.ContainsFunc(blocks, func(b lease.Block) bool { return !holds(leases, b.Subnet) }) {
		p.served = leases
		return true
	}
	err := p.addresses.Serve(ctx, leases)
	if err != nil && !errors.Is(err, ErrInUse) {
		p.fail("give addresses from the leased blocks", err)
		p.accepted = false
		return false
	}
	p.served, p.accepted = leases, true
	return true
}

func holds(leases []cluster.Lease, subnet netip.Prefix) bool {
	return slices.ContainsFunc(leases, func(l cluster.Lease) bool { return l.Subnet == subnet })
}

// claim creates leases. Whatever the registry has answered calls for another
// decision; a claim in doubt waits for the Store instead.
func (p *pass) claim(ctx context.Context, leases []cluster.Lease) {
	for _, l := range leases {
		name := l.Name()
		if !p.writes.settled(name) {
			p.waiting = append(p.waiting, fmt.Sprintf("the registry does not show yet whose block %s is", l.Subnet))
			continue
		}
		err := p.leases.Create(ctx, l)
		doubt := p.writes[name].outcome == inDoubt
		switch {
		case err == nil:
			l.Created = p.now.UnixNano()
			p.writes[name] = write{written, l, p.now}
			p.view.leases[name] = l
			p.view.forget(l.Subnet)
			p.unfinished = true
		case errors.Is(err, registry.ErrExists) && doubt:
			p.writes[name] = write{likelyOurs, l, p.now}
			p.waiting = append(p.waiting, fmt.Sprintf("the registry does not show yet whose block %s is", l.Subnet))
		case errors.Is(err, registry.ErrExists):
			p.writes[name] = write{taken, l, p.now}
			p.unfinished = true
		case errors.Is(err, registry.ErrUntried):
			p.waiting = append(p.waiting, fmt.Sprintf("block %s is not claimed: %v", l.Subnet, err))
			p.fail("claim "+l.Subnet.String(), err)
		default:
			p.writes[name] = write{inDoubt, l, p.now}
			p.waiting = append(p.waiting, fmt.Sprintf("block %s was claimed without an answer", l.Subnet))
			p.fail("claim "+l.Subnet.String(), err)
		}
	}
}

// replace corrects leases. A conflict is settled by the Store's next state.
func (p *pass) replace(ctx context.Context, leases []cluster.Lease) {
	for _, l := range leases {
		if !p.writes.settled(l.Name()) {
			continue
		}
		err := p.leases.Replace(ctx, l)
		switch {
		case err == nil:
			p.writes[l.Name()] = write{written, l, p.now}
			p.view.leases[l.Name()] = l
		case errors.Is(err, registry.ErrConflict):
			p.writes[l.Name()] = write{conflict, l, p.now}
		default:
			p.fail("correct SubnetLease "+l.Name(), err)
		}
	}
}

// release deletes leases that IPAM has dropped. One that a pod got an address
// of meanwhile is decided about anew.
func (p *pass) release(ctx context.Context, leases []cluster.Lease) {
	if len(leases) == 0 {
		return
	}
	blocks, err := p.blocks()
	if err != nil {
		p.fail("read the use of addresses", err)
		return
	}
	for _, l := range leases {
		dropped := !slices.ContainsFunc(blocks, func(b lease.Block) bool { return b.Subnet == l.Subnet })
		switch {
		case !p.writes.settled(l.Name()):
		case dropped:
			p.delete(ctx, l)
		default:
			p.unfinished = true
		}
	}
}

// delete gives a lease back. From here on it is not this node's, whatever the
// registry answers.
func (p *pass) delete(ctx context.Context, l cluster.Lease) {
	p.previous = slices.DeleteFunc(p.previous, func(s netip.Prefix) bool { return s == l.Subnet })
	p.writes[l.Name()] = write{mayBeDeleted, l, p.now}
	away := l
	away.Node = givenBack(p.config.Node)
	p.view.leases[l.Name()] = away
	if err := p.leases.Delete(ctx, l); err != nil && !errors.Is(err, registry.ErrConflict) {
		p.fail("give back SubnetLease "+l.Name(), err)
		return
	}
	p.writes[l.Name()] = write{deleted, l, p.now}
}

// deleteAgain repeats deletions whose outcome is not known.
func (p *pass) deleteAgain(ctx context.Context) {
	for _, subnet := range p.writes.subnets(mayBeDeleted) {
		p.delete(ctx, p.writes[cluster.LeaseName(subnet)].lease)
	}
}
