#!/bin/bash
# What `make test` runs: linters, unit tests, and for each promise of README.md a real run (tests/integration/quick.py).
# The programs of the rigs are built beside linters and unit tests, with less priority: on a bare machine that takes longest.
set -euo pipefail
cd "$(dirname "$0")/../.."
began=$SECONDS
step() { echo "=== $* ($((SECONDS - began)) s)"; "$@"; }
make() { command make --no-print-directory "$@"; }
step make packages # before anything runs side by side: hosts of the fleet rig share files with this machine
said=$(mktemp)
set -m # a process group of its own, to be ended as one
nice -n 5 python tests/rigs/programs.py --quick >"$said" 2>&1 &
build=$!
set +m
trap 'kill -- "-$build" 2>/dev/null || true; rm -f "$said"' EXIT
status=0
step make lint || status=$?
step make unit || status=$?
wait_for_programs() {
    tail -n +1 -f --pid="$build" "$said" # until it ends, with what it says
    wait "$build"
}
go_on() { [ "$status" = 0 ] || [ "${KEEP_GOING:-}" ]; }
if go_on; then step make demo || status=$?; fi
step wait_for_programs || status=$?
if go_on; then step make integration-quick || status=$?; fi
echo "=== the tests of make test are over ($((SECONDS - began)) s)"
exit "$status"
