#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every test, prints what each part took, and last the ledger: what ran on
# this kernel and what this kernel cannot run.
set -euo pipefail
cd "$(dirname "$0")/.."

WEFT_TEST_LEDGER=$(mktemp)
export WEFT_TEST_LEDGER
trap 'rm -f "$WEFT_TEST_LEDGER"' EXIT

part() { # NAME COMMAND...
	local name=$1 start=$SECONDS
	shift
	printf '\n=== %s\n' "$name"
	"$@"
	printf '=== %s: ok, %d s\n' "$name" $((SECONDS - start))
}

# Tests that need the real API server fail without it, instead of skipping.
export WEFT_COMPONENTS=required

part "unit and kernel tests, with the race detector" go test -race ./api/... ./cmd/... ./internal/... ./deploy/... ./hack/...
part "simulation: hundreds of nodes in virtual time" go test -count=1 -timeout 15m ./test/sim
part "many nodes in the lab, and what breaks them" go test -count=1 -timeout 20m -v ./test/mesh
part "conformance: thin, thick, and the reference ptp" go test -count=1 -timeout 15m ./test/conformance
part "crash points" go test -count=1 -timeout 15m -v -run . ./test/crash
part "soak: ADD and DEL with random kills" go test -count=1 -timeout 20m -v ./test/soak
part "the test cluster itself, with the reference plugins" go test -count=1 -timeout 10m ./test/apiserver ./test/cluster
part "end to end on a real cluster" go test -count=1 -timeout 30m -v ./test/e2e
part "tests of the benchmark's arithmetic" go test ./test/bench ./test/bench-cluster
part "fuzzers, briefly" test/fuzz.sh 20000x
part "demonstration" demo/demo.sh

printf '\n=== ledger: what this kernel ran, and what it cannot run\n'
sort "$WEFT_TEST_LEDGER" | uniq | awk '/^LEDGER ran/ {ran++; next} {print} END {printf "%d feature tests ran\n", ran}'
