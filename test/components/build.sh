#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds what a cluster for tests is made of, at the versions that the modules
# beside this file pin, once.
#
#   build.sh [COMPONENT...]
#
# A component goes to ${WEFT_CACHE:-$HOME/.cache/weft}/components/NAME-VERSION/,
# which exists either complete or not at all: the build goes to a directory
# beside it that is renamed at the end, so two runs at once, or one that is
# killed, do no harm. Progress goes to stderr; stdout has one directory a line,
# in the order of the arguments.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${WEFT_CACHE:-$HOME/.cache/weft}/components

# module NAME: the module whose version names the directory.
module() {
	case $1 in
	containerd) echo github.com/containerd/containerd/v2 ;;
	coredns) echo github.com/coredns/coredns ;;
	etcd) echo go.etcd.io/etcd/server/v3 ;;
	helm) echo helm.sh/helm/v4 ;;
	kubernetes) echo k8s.io/kubernetes ;;
	runc) echo github.com/opencontainers/runc ;;
	*) echo "unknown component $1" >&2 && return 1 ;;
	esac
}

# compile NAME VERSION DIRECTORY
compile() {
	local name=$1 version=$2 out=$3 stamp=k8s.io/component-base/version cgo=0 flags="-s -w" tags="" packages pkg
	packages=$(go list -f '{{.ImportPath}}' tool 2>/dev/null || true)
	[ -n "$packages" ] || packages=. # CoreDNS: a main of our own
	case $name in
	kubernetes)
		# Without it the kubelet reports v0.0.0.
		local minor=${version#v1.}
		flags+=" -X $stamp.gitVersion=$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*}"
		;;
	containerd) flags+=" -X github.com/containerd/containerd/v2/version.Version=$version" ;;
	runc) cgo=1 tags=seccomp ;; # or every container fails: its configuration has seccomp
	esac
	for pkg in $packages; do
		echo "components: build $name $version: ${pkg##*/}" >&2
		CGO_ENABLED=$cgo go build -trimpath -tags "$tags" -ldflags "$flags" -o "$out/" "$pkg"
	done
	# etcd's program is called after the last part of its path that is no version.
	[ ! -e "$out/server" ] || mv "$out/server" "$out/$name"
}

mkdir -p "$cache"
for name in "${@:-}"; do
	[ -n "$name" ] || { echo "usage: $0 COMPONENT..." >&2; exit 2; }
	cd "$here/$name"
	version=$(go list -m -f '{{.Version}}' "$(module "$name")")
	dir=$cache/$name-$version
	if [ ! -d "$dir" ]; then
		tmp=$(mktemp -d "$cache/.$name.XXXXXX")
		trap 'rm -rf "$tmp"' EXIT INT TERM
		start=$SECONDS
		compile "$name" "$version" "$tmp"
		chmod 755 "$tmp"
		# -T: never move into a directory that another run has put there meanwhile.
		mv -T "$tmp" "$dir" 2>/dev/null || [ -d "$dir" ]
		echo "components: $name $version built in $((SECONDS - start)) s" >&2
	fi
	echo "$dir"
done
