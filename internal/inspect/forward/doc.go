// SPDX-License-Identifier: Apache-2.0

// Package forward finds what somebody else has put in the way of forwarded
// packets: docker's policy DROP, firewalld's final reject, a firewall made by
// hand.
//
// Every chain at the kernel's forward hook must let a packet pass, whatever
// other chains say. A Barrier is one that drops by default (by its policy, or
// by a rule without condition) and in which no rule speaks for our pods: none
// that matches one of their subnets or Weft's interfaces and does something
// else than drop. What such a rule demands besides, and what becomes of the
// packet in the chain that it leads to, is not judged: this package would
// rather miss a barrier than name a wrong one.
//
// It reads nftables by netlink, iptables-nft with it, and iptables-legacy by
// the socket options of iptables itself; always of the calling thread's network
// namespace. It changes nothing: the rules of others are theirs.
package forward
