#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows the main job of Weft on this machine, from nothing to nothing: three
# nodes on two segments, pods that all reach each other, an agent that is killed
# and a node that burns. `make demo` builds the programs first. Everything
# happens in network namespaces of the lab's own. Needs root.

set -euo pipefail

cd "$(dirname "$0")/.."
bin=${WEFT_BIN:-$PWD/bin}
weft=$bin/weft
name=demo
lab=/run/weft-lab/$name
pods=(a:node1 b:node1 c:node2 d:node2 e:node3 f:node3)

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
	bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
	bold='' dim='' green='' red='' plain=''
fi

# ---- how it speaks ---------------------------------------------------------

number=0
filter='' # what run shows, see brief
current='the preparations'
stream=''  # process id of the stream in the background, while it runs
started=no # whether there is a lab of ours to clean up
scratch=$(mktemp -d)

# step TITLE SENTENCE...: what comes now, and what to see in it.
step() {
	current=$1
	number=$((number + 1))
	printf '\n%s%d. %s%s\n' "$bold" "$number" "$1" "$plain"
	shift
	printf '   %s\n' "$@"
}

# run COMMAND...: shows the command as a newcomer would type it, then its output:
# all of it, or, after brief, the header and what matches.
run() {
	printf '   %s$ %s%s\n' "$dim" "${*//$bin\//bin/}" "$plain"
	"$@" >"$scratch/out" 2>&1 || fail "\`${*//$bin\//bin/}\` succeeds" "$(cat "$scratch/out")"
	awk -v filter="$filter" 'NR == 1 || $0 ~ filter { print "     " $0 }' "$scratch/out"
	filter=''
}

# brief PATTERN: how much the next run shows.
brief() { filter=$1; }

good() { printf '   %sok%s  %s\n' "$green" "$plain" "$1"; }

# fail EXPECTED SEEN: says what is wrong and ends; the trap cleans up.
fail() {
	printf '\n%sFAILED%s in step %d, %s\n' "$red" "$plain" "$number" "$current"
	printf '   expected: %s\n   seen:     %s\n' "$1" "${2//$'\n'/$'\n'             }"
	exit 1
} >&2

# finish runs at every end: success, failure and Ctrl-C.
finish() {
	local status=$?
	trap '' INT TERM
	[[ -z $stream ]] || kill "$stream" 2>/dev/null || true
	if [[ $started == yes ]]; then
		if [[ $status != 130 && -d $lab ]]; then
			local kept
			kept=$(mktemp -d /tmp/weft-demo.XXXXXX)
			cp -r --parents "$lab"/node*/agent.log "$lab"/registry "$kept" 2>/dev/null || true
			printf '   logs of the agents and manifests: %s\n' "$kept" >&2
		fi
		printf '   cleaning up: weft lab down --name %s\n' "$name" >&2
		"$weft" lab down --name "$name" >/dev/null || status=1
	fi
	rm -rf "$scratch"
	exit "$status"
}
trap finish EXIT
trap 'echo >&2; echo "   interrupted in step $number, $current" >&2; exit 130' INT TERM

# ---- what it asks ----------------------------------------------------------

# on NODE COMMAND...: an operator's command of weft on a node, as run shows it.
on() {
	local node=$1
	shift
	run "$weft" lab exec --name "$name" "$node" -- "$weft" "$@" --state-dir "$lab/$node/state"
}

# ---- the demonstration -----------------------------------------------------

if [[ $EUID -ne 0 ]]; then
	fail 'to be root, because network namespaces need it' "user $(id -un); try: sudo make demo"
fi
for program in weft weft-cni weft-ipam; do
	[[ -x $bin/$program ]] || fail "$bin/$program exists" 'it does not; run: make build'
done
if [[ -e $lab ]]; then
	fail "no lab \"$name\" exists" "$lab, of an earlier run; remove it with: bin/weft lab down --name $name"
fi
begin=${EPOCHREALTIME/[.,]/}
"$weft" lab probe machine >"$scratch/before"

step 'Three nodes on two segments' \
	'A Kubernetes node is played by a network namespace in which a real `weft agent` runs.' \
	'node1 and node3 are on one Ethernet segment, node2 is on another; the namespace' \
	'"outside" is the router between them and the world beyond. No cluster and no' \
	'container is needed, and nothing else on this machine is touched.'
started=yes
run "$weft" lab up --name "$name" --nodes 3 --segments 2

step 'What the nodes have agreed on' \
	'The state of the cluster is a directory of Kubernetes manifests here, the API server' \
	'in a real one. A pool says which addresses pods may have. Each node has leased a' \
	'block of each family out of it, by creating an object that is named after the block:' \
	'two nodes cannot create the same. Nobody else is asked.'
run cat "$lab/registry/pool.yaml"
on node1 lease list
[[ $(grep -c ' default ' "$scratch/out") == 6 ]] || fail 'six leases, two for each node' "$(cat "$scratch/out")"
good 'each node has a block of its own of each family'

step 'Two pods on each node' \
	'For each pod the lab does what containerd does: it makes a network namespace and' \
	'executes the CNI plugin `weft-cni`, which gives it an interface, an address out of' \
	"each of its node's blocks, and routes. ADD is the time that the runtime waits for it."
for pod in "${pods[@]}"; do
	run "$weft" lab pod add --name "$name" "${pod%:*}" --node "${pod#*:}"
done

step 'Every pod reaches every pod, without NAT' \
	'Every pod asks every other, and the outside, over IPv4 and IPv6, by ICMP, TCP and' \
	'UDP. The pod that is asked sees SOURCE, the own address of the one that asks. The' \
	"outside has no route to a pod: what leaves the pods' network for it carries the" \
	"node's address. Shown is pod a; all others are tried as well."
brief '^a '
run "$weft" lab check --name "$name"
good "$(tail -1 "$scratch/out")"

step 'Which way the packets take' \
	'node3 is on the segment of node1: a plain route by its address, nothing is added to' \
	'a packet. node2 is not: packets go inside UDP, by VXLAN. Each node decides that by' \
	'itself, for each other node. Each route names the object that asks for it.'
on node1 node list
grep -q '^node2 .* vxlan ' "$scratch/out" || fail 'node1 reaches node2 by VXLAN' "$(cat "$scratch/out")"
grep -q '^node3 .* native ' "$scratch/out" || fail 'node1 reaches node3 natively' "$(cat "$scratch/out")"
brief 'SubnetLease'
on node1 route list
good 'native on the segment, VXLAN across'

step 'An agent is killed' \
	'Pod a sends a numbered message to pod c every 2 ms, over IPv4 and IPv6. Meanwhile the' \
	'agent of node1 is killed (SIGKILL), a pod is deleted without it, and it is' \
	'started again. Packets are the business of the kernel: they must not notice.'
"$weft" lab stream --name "$name" a c --for 4s >"$scratch/stream" 2>&1 &
stream=$!
run "$weft" lab node kill --name "$name" node1
run "$weft" lab pod del --name "$name" b
run "$weft" lab node start --name "$name" node1
printf '   %s$ bin/weft lab stream --name %s a c --for 4s%s\n' "$dim" "$name" "$plain"
wait "$stream" || fail 'no message is lost' "$(cat "$scratch/stream")"
stream=''
sed 's/^/     /' "$scratch/stream"
good 'no message was lost'

step 'Is all as it should be?' \
	'The runtime can ask the plugin at any time: STATUS, whether the node could take' \
	'another pod, and CHECK, whether a pod still has all that it was given.'
run "$weft" lab status --name "$name"

step 'A node burns' \
	'node2 disappears with its pods, and nobody there says goodbye. Its Node object is' \
	'deleted, as an operator does then, and with it its leases. The other nodes see' \
	'that, and what led to it is gone from their kernels.'
run "$weft" lab node remove --name "$name" node2
for node in node1 node3; do
	for ((try = 0; try < 100; try++)); do
		"$weft" lab exec --name "$name" "$node" -- "$weft" route list --state-dir "$lab/$node/state" >"$scratch/routes" 2>&1 || true
		grep -q 'of node2' "$scratch/routes" || break
		sleep 0.1
	done
	((try < 100)) || fail "$node has no route to node2's pods any more" "$(cat "$scratch/routes")"
done
run "$weft" lab exec --name "$name" node3 -- ip route
on node1 lease list
good 'nothing leads to node2 any more, and the others go on'
brief '^a '
run "$weft" lab check --name "$name"
good "$(tail -1 "$scratch/out")"

step 'The end' \
	'The lab goes down: DEL for each pod, then agents, namespaces and files.'
run "$weft" lab down --name "$name"
started=no

step 'The machine is as before' \
	'Links, mounts and with them namespaces, files under /run/weft*, and processes,' \
	'compared with the time before step 1.'
for ((try = 0; try < 30; try++)); do
	"$weft" lab probe machine >"$scratch/after"
	! diff "$scratch/before" "$scratch/after" >"$scratch/diff" || break
	sleep 0.1 # another program may have come or gone just now
done
((try < 30)) || fail 'no difference' "$(cat "$scratch/diff")"
good "no difference in $(wc -l <"$scratch/after") items"

printf '\n%sAll of it in %d ms.%s Next: bin/weft lab up --nodes 3, and README.md.\n' \
	"$bold" $(((${EPOCHREALTIME/[.,]/} - begin) / 1000)) "$plain"
