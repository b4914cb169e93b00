#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows the main job of Weft on this machine, from nothing to nothing: pods get
# a network, use it, one goes, all go. `make demo` builds the programs first.
# Everything happens in network namespaces of the lab's own. Needs root.

set -euo pipefail

cd "$(dirname "$0")/.."
bin=${WEFT_BIN:-$PWD/bin}
weft=$bin/weft
name=demo
state=/run/weft-lab/$name/node1/state
log=/run/weft-lab/$name/node1/agent.log
outside4=203.0.113.1 outside6=2001:db8:113::1 # as `weft lab status` shows them
node4=198.18.1.11 node6=2001:db8:18:1::11
pods=(a b c)
declare -A ip4 ip6

if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
	bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
	bold='' dim='' green='' red='' plain=''
fi

# ---- how it speaks ---------------------------------------------------------

number=0
current='the preparations'
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

# run COMMAND...: shows the command as a newcomer would type it, then its output.
run() {
	printf '   %s$ %s%s\n' "$dim" "${*//$bin\//bin/}" "$plain"
	"$@" >"$scratch/out" 2>&1 || fail "\`${*//$bin\//bin/}\` succeeds" "$(cat "$scratch/out")"
	sed 's/^/     /' "$scratch/out"
}

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
	if [[ $started == yes ]]; then
		if [[ $status != 130 && -f $log ]]; then
			local kept
			kept=$(mktemp /tmp/weft-demo-agent.XXXXXX.log)
			cp "$log" "$kept"
			printf '   log of the agent: %s\n' "$kept" >&2
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

# within MACHINE COMMAND...: runs weft inside a pod, the node or the outside.
within() {
	local machine=$1
	shift
	"$weft" lab exec --name "$name" "$machine" -- "$weft" "$@"
}

# ping FROM ADDRESS: prints the round-trip time.
ping() {
	local out
	out=$(within "$1" lab probe ping "$2" 2>&1) || fail "$1 gets an answer from $2" "$out"
	echo "${out#*answers in }"
}

# serve MACHINE: a server on port 8080 that says who it is and whom it sees.
# It lives until the lab goes down; this returns when it listens.
serve() {
	local line=''
	read -r line < <(within "$1" lab probe serve --as "$1" --port 8080 2>&1) || true
	[[ $line == 'listening on port 8080' ]] || fail "a server in $1 listens on port 8080" "$line"
}

# ask FROM ADDRESS WANT: asks the server there by TCP. Its answer, "<server>
# sees <client>", must begin with WANT.
ask() {
	local out
	out=$(within "$1" lab probe ask tcp "$2:8080" 2>&1) || fail "$1 reaches $2 by TCP" "$out"
	[[ $out == "$3"* ]] || fail "$1 asks $2: $3…" "$out"
	echo "$out"
}

addresses() { within node1 ipam show --state-dir "$state" --addresses; }

# ---- the demonstration -----------------------------------------------------

if [[ $EUID -ne 0 ]]; then
	current='the preparations' fail 'to be root, because network namespaces need it' "user $(id -un); try: sudo make demo"
fi
for program in weft weft-cni weft-ipam; do
	[[ -x $bin/$program ]] || fail "$bin/$program exists" 'it does not; run: make build'
done
if [[ -e /run/weft-lab/$name ]]; then
	fail "no lab \"$name\" exists" "/run/weft-lab/$name, of an earlier run; remove it with: bin/weft lab down --name $name"
fi
begin=${EPOCHREALTIME/[.,]/}
"$weft" lab probe machine >"$scratch/before"

step 'A node' \
	'A Kubernetes node, played by a network namespace: a real `weft agent` runs in it.' \
	'A second namespace plays the world outside. No cluster and no container is needed,' \
	'and nothing else on this machine is touched.'
started=yes
run "$weft" lab up --name "$name"

step 'Three pods' \
	'For each pod the lab does what containerd does: it makes a network namespace and' \
	'executes the CNI plugin `weft-cni`, which gives it an interface, an IPv4 and an IPv6' \
	'address and routes. ADD is the time that the runtime had to wait for that.'
for pod in "${pods[@]}"; do
	run "$weft" lab pod add --name "$name" "$pod"
	both=$(awk 'NR == 2 { print $3 }' "$scratch/out")
	ip4[$pod]=${both%,*} ip6[$pod]=${both#*,}
	[[ ${ip4[$pod]} == *.*.*.* && ${ip6[$pod]} == *:* ]] || fail "pod $pod has an IPv4 and an IPv6 address" "$both"
done

step 'Every pod reaches every pod' \
	'Ping, over IPv4 and IPv6, in every direction.'
for from in "${pods[@]}"; do
	for to in "${pods[@]}"; do
		[[ $from != "$to" ]] || continue
		time4=$(ping "$from" "${ip4[$to]}")
		time6=$(ping "$from" "${ip6[$to]}")
		printf '     %s -> %s   %-12s %-10s   %-12s %s\n' "$from" "$to" "${ip4[$to]}" "$time4" "${ip6[$to]}" "$time6"
	done
done
good 'all 12 answered'

step 'One port for all, and no NAT between pods' \
	'A server in each pod listens on port 8080: they cannot collide, each pod has a' \
	'network of its own. A server answers with its name and with the address that it' \
	'sees the client at, which must be the address of the asking pod.'
for pod in "${pods[@]}"; do
	serve "$pod"
done
for from in "${pods[@]}"; do
	for to in "${pods[@]}"; do
		[[ $from != "$to" ]] || continue
		answer4=$(ask "$from" "${ip4[$to]}" "$to sees ${ip4[$from]}:")
		answer6=$(ask "$from" "[${ip6[$to]}]" "$to sees [${ip6[$from]}]:")
		printf '     %s asks %s:   %-24s   %s\n' "$from" "$to" "$answer4" "$answer6"
	done
done
good 'all 12 answered with the right name, and saw the pod itself'

step 'The outside' \
	'The outside has no route to a pod, so it could not answer one. What leaves the node' \
	"therefore carries the node's address, $node4 or $node6: it is masqueraded."
serve outside
answer4=$(ask a "$outside4" "outside sees $node4:")
answer6=$(ask a "[$outside6]" "outside sees [$node6]:")
printf '     a asks outside:   %s   %s\n' "$answer4" "$answer6"
good "the outside sees the node, not ${ip4[a]} or ${ip6[a]}"

step 'Is all as it should be?' \
	'The runtime can ask the plugin at any time: STATUS, whether the node could take' \
	'another pod, and CHECK, whether a pod still has all that it was given.'
run "$weft" lab status --name "$name"

step 'A pod goes' \
	'Pod b is deleted (CNI DEL). Its addresses are free, but they cool down for half a' \
	'minute: a peer that has not yet heard should not talk to a stranger. So the next' \
	'pod gets other ones, although these are the lowest that are free.'
run "$weft" lab pod del --name "$name" b
# DEL returns as soon as the pod is cut off; the kernel takes a moment longer,
# and the address is free only then.
for ((try = 0; try < 50; try++)); do
	addresses >"$scratch/addresses"
	[[ $(grep -cE "^(${ip4[b]}|${ip6[b]}) +cooling" "$scratch/addresses") != 2 ]] || break
	sleep 0.1
done
printf '   %s$ bin/weft lab exec --name %s node1 -- bin/weft ipam show --state-dir %s --addresses%s\n' \
	"$dim" "$name" "$state" "$plain"
awk '{ printf "     %-12s %-9s %s\n", $1, $2, substr($3, 1, 24) }' "$scratch/addresses"
((try < 50)) || fail "${ip4[b]} and ${ip6[b]} are cooling" "$(cat "$scratch/addresses")"
good "${ip4[b]} and ${ip6[b]} are free and cooling"
run "$weft" lab pod add --name "$name" d
! grep -qE "[ ,](${ip4[b]}|${ip6[b]})[ ,]" "$scratch/out" || fail 'pod d gets other addresses than b had' "$(cat "$scratch/out")"
good "pod d did not get pod b's addresses"

step 'The end' \
	'The lab goes down: DEL for each pod, then agent, namespaces and files.'
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

printf '\n%sAll of it in %d ms.%s Next: bin/weft lab up, and README.md.\n' \
	"$bold" $(((${EPOCHREALTIME/[.,]/} - begin) / 1000)) "$plain"
