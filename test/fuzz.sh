#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every native fuzzer for a while: test/fuzz.sh [INPUTS], by default 200000x each.
# A number of inputs, not a time: go test now and then fails at the end of a time
# with nothing but "context deadline exceeded" (go.dev/issue/75804, mended in Go 1.27).
# What a fuzzer finds stays in its package's testdata/fuzz, as a test for ever.
set -euo pipefail
cd "$(dirname "$0")/.."
inputs=${1:-200000x}
output=$(mktemp)
trap 'rm -f "$output"' EXIT

count=0
while IFS=: read -r file line; do
	package=./$(dirname "$file")
	name=${line#func }
	name=${name%%(*}
	if ! go test -run '^$' -fuzz "^$name\$" -fuzztime "$inputs" "$package" >"$output" 2>&1; then
		cat "$output"
		exit 1
	fi
	echo "$package $name: ok"
	count=$((count + 1))
done < <(grep -r --include='*_test.go' '^func Fuzz' api internal)
[ "$count" -gt 0 ]
echo "$count fuzzers ran, $inputs each"
