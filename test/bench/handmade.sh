# SPDX-License-Identifier: Apache-2.0
#
# Three nodes on two segments, each with a pod, wired by hand as the lab wires
# its own, with Weft's choice of routes: node1 and node3 are on one segment,
# node2 is on the other. Nothing of nftables. MTU is that of pods and VXLAN.

at() { ns=$1; shift; ip -n "hand-$ns" "$@"; }
forward() { ip netns exec "hand-$1" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'; }

make() {
  ip netns add "hand-$1"
  at "$1" link set lo up
}

segment() { # number
  at outside link add "segment$1" type bridge
  at outside address add "198.18.$1.1/24" dev "segment$1"
  at outside link set "segment$1" up
}

node() { # number, segment
  make "node$1"
  at "node$1" link add uplink0 type veth peer name "node$1" netns hand-outside
  at outside link set "node$1" master "segment$2" up
  at "node$1" address add "198.18.$2.1$1/24" dev uplink0
  at "node$1" link set uplink0 up
  at "node$1" route add default via "198.18.$2.1"
  at "node$1" link add vxlan0 address "02:00:00:00:00:0$1" mtu "$MTU" type vxlan \
    id 119 dstport 4789 local "198.18.$2.1$1" nolearning
  at "node$1" address add "10.42.$1.1/32" dev vxlan0
  at "node$1" link set vxlan0 up
  forward "node$1"
}

pod() { # number, on the node of that number
  make "pod$1"
  at "node$1" link add "pod$1" mtu "$MTU" type veth peer name eth0 mtu "$MTU" netns "hand-pod$1"
  at "node$1" link set "pod$1" up
  at "pod$1" address add "10.42.$1.2/32" dev eth0
  at "pod$1" link set eth0 up
  at "pod$1" route add default via "10.42.$1.1" dev eth0 onlink
  at "node$1" route add "10.42.$1.2/32" dev "pod$1"
}

tunnel() { # number of the node; number and address of the peer
  at "node$1" route add "10.42.$2.0/24" via "10.42.$2.1" dev vxlan0 onlink
  at "node$1" neighbour add "10.42.$2.1" lladdr "02:00:00:00:00:0$2" dev vxlan0 nud permanent
  bridge -n "hand-node$1" fdb add "02:00:00:00:00:0$2" dev vxlan0 dst "$3" self permanent
}

make outside
segment 1
segment 2
forward outside
node 1 1
node 2 2
node 3 1
for n in 1 2 3; do pod $n; done
tunnel 1 2 198.18.2.12
tunnel 2 1 198.18.1.11
at node1 route add 10.42.3.0/24 via 198.18.1.13
at node3 route add 10.42.1.0/24 via 198.18.1.11
