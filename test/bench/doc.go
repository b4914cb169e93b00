// SPDX-License-Identifier: Apache-2.0

// Command bench measures weft-cni against the reference plugins, through
// libcni, as a container runtime calls them; an agent with thousands of peers;
// and the traffic between nodes against the same network wired by hand.
//
//	go run ./test/bench [-quick] [-report FILE]
//
// It prints one line "bench NAME VALUE UNIT" per result, and with -report it
// writes them as a page with method, spread and machine. A missed target is a
// result, not a failure: the exit status is 0 unless something broke.
//
// # Method
//
// Everything runs in one process tree with mount, network and process
// namespaces of its own, which plays the host; the machine's own are out of
// reach, and the kernel takes all of it back when the tree ends, however it
// ends. Sandboxes are made beforehand, outside the timed part, and every network
// has one pod that stays, as on a node that is in use.
//
// All contenders take turns within one run: in each round every one does one
// ADD and one DEL, each after a short rest and in an order that is shuffled
// anew, so drift of the machine hits all alike. What is compared has the same
// families, routes and masquerade setting, and its state on the same tmpfs.
//
// A ratio is a ratio of medians over rounds; its spread is the 95 % interval
// of a bootstrap that draws whole rounds, because within one round the
// contenders saw the same machine.
//
// DEL of a thick plugin returns before interface and address are free. So DEL
// is also timed until they are, and the burst's rate counts until the last is.
//
// The agent with the peers is a real one, in a namespace of its own, whose
// registry is a directory of manifests; what it says about itself is compared
// with the kernel. Traffic runs between pods of the lab, with real agents, and
// in turns between those of handmade.sh: same segments, same MTU. After each run
// the counters of the interfaces tell that it took the way that it should.
//
// # What it does not do
//
// It does not test: every ADD and DEL is checked to have happened, and that is
// all. It does not compare traffic on one node.
package main
