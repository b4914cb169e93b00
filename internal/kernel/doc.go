// SPDX-License-Identifier: Apache-2.0

// Package kernel makes attachments and per-node objects real in the Linux
// kernel, and compares what is there with what should be. It observes and
// applies; it decides nothing: every address, name and number comes from the
// caller, most of them in an attach.Plan.
//
// A Handle talks rtnetlink and nftables in one network namespace, "the host".
// Sandboxes are given as a *Netns, which is verified to be a network namespace
// before anything is done with it. Any number of goroutines may use one Handle
// at once: each operation takes a socket of its own from a small pool.
//
// Attach, Detach and Compare serve the pods, ports of the host and limits
// included; RemoveOrphans removes those whose pod is gone. EnsureNode makes what one network
// needs of the node. The network between nodes is kept by drivers, which
// observe and apply one kind of object each (their contract is
// reconcile.Driver): Sysctls, VXLANLinks, FabricAddresses, FabricNeighbours,
// FDB, FabricRoutes, NAT. Monitor says in the drivers' words what others change.
//
// # Ownership
//
// What Weft makes, a Weft with an empty memory must recognize:
//
//   - links: kind veth and an alias that begins with "weft "; or, for the
//     moment between creation and alias, kind veth, no alias and a name of the
//     exact form that attach.Key.HostIfname gives. Detach deletes nothing else.
//   - VXLAN devices: kind vxlan, one of two names, and our alias or none; all
//     that is on them is ours, too.
//   - routes: RouteProtocol. A pod's has no gateway; the drivers' have one, or
//     are unreachable or local.
//   - nftables: one table with a name that the caller reserves for Weft, and
//     HostPortTable, in which the comment of each element begins with the name of
//     the host end that it belongs to.
//   - shapers: kind ifb, the name that attach.Shaper gives, and our alias or none.
//   - links about to be deleted together: the interface group DoomedGroup.
//
// # Invariants
//
//   - Attach refuses, and changes nothing, where either name is taken.
//   - The host end carries its alias before it is up.
//   - No IPv6 link-local address appears that no plan lists, and no address is
//     ever subject to duplicate address detection.
//   - A plan without IPv6 needs no IPv6 in the kernel.
//   - When Attach returns, both ends can transmit: the first packet is not lost
//     to a carrier event (Linux 6.8) or an IPv6 address still on its way.
//   - Detach, DetachAll, EnsureNode, RemoveNode and RemoveOrphans are idempotent.
//   - A port is mapped after the interface was made and unmapped before it goes.
//     Each change of HostPortTable holds only if nothing changed since it was
//     read: of any number of processes, none undoes what another did.
//   - A pod cannot reach 127.0.0.0/8 of the host: the rules against it are there
//     before route_localnet is, and go after the last interface that has it.
//   - The masquerade table is replaced in one transaction: nobody, at any
//     moment, sees half of it or two copies of a rule.
//   - A driver changes nothing foreign. An addition where something foreign is
//     fails with an error that names it.
//
// # Speed
//
// rtnetlink handles a datagram with several requests in order, under one
// system call. Attach therefore sends four: create, configure the host end,
// configure the sandbox, synchronize the carrier; and with IPv6 a few more to
// see that the kernel has put the addresses to use. Nothing on the path of an ADD
// dumps a table except the rules of Weft's own nftables chain, of which there
// are two. A deleted veth pair costs an RCU grace period, however many go at
// once: DetachAll pays it once. Drivers put their operations into datagrams of
// 40, and read a table only when the kernel contradicts what they were told.
//
// # What it does not do
//
// It does not ask whether a process of the host listens on a port that it maps:
// the pod gets the packets. It maps nothing on ::1, of which the kernel takes no
// answer from another interface.
//
// It does not remember (but for Sysctls, which must), retry at leisure, log, or
// undo: after an error of Attach the caller calls Detach. It does not bring up
// loopback in a sandbox (the runtime does, by the plugin of that name). It runs
// no program.
package kernel
