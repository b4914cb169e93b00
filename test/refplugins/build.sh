#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Builds the reference plugins that go.mod pins, static, once.
#
# They go to ${WEFT_CACHE:-$HOME/.cache/weft}/refplugins-VERSION/, which exists
# either complete or not at all: the build goes to a directory beside it that is
# renamed at the end, so two runs at once, or one that is killed, do no harm.
# Progress goes to stderr; the last line of stdout is the directory.
set -eu

cd "$(dirname "$0")"
# The module cache already holds everything after the first run: no network then.
version=$(go list -m -f '{{.Version}}' github.com/containernetworking/plugins)
cache=${WEFT_CACHE:-$HOME/.cache/weft}
dir=$cache/refplugins-$version

if [ ! -d "$dir" ]; then
	mkdir -p "$cache"
	tmp=$(mktemp -d "$cache/.refplugins.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT INT TERM
	stamp=github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion
	for pkg in $(go list -f '{{.ImportPath}}' tool); do
		echo "reference plugins $version: build ${pkg##*/}" >&2
		CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X $stamp=$version" -o "$tmp/" "$pkg"
	done
	chmod 755 "$tmp"
	# -T: never move into a directory that another run has put there meanwhile.
	mv -T "$tmp" "$dir" 2>/dev/null || [ -d "$dir" ]
fi
echo "$dir"
