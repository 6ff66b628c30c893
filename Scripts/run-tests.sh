#!/usr/bin/env bash
# Runs the tests that are built and, where some fail, says at the end which, so that nobody searches a long log for them.
# Usage: Scripts/run-tests.sh [arguments of swift test]
set -uo pipefail
export TILECACHE_TOOLS=1 SWIFT_DETERMINISTIC_HASHING=1
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Otherwise all tests begin at once, and what one of them waits for stands in line behind the first steps of all others:
# minutes on a busy machine.
together=()
if swift test --help-hidden 2>&1 | grep -q -- --experimental-maximum-parallelization-width; then
    together=(--experimental-maximum-parallelization-width 8)
fi

swift test -c release --skip-build --scratch-path "${SCRATCH:-.build}" ${together[@]+"${together[@]}"} "$@" 2>&1 | tee "$log"
status=$?
if [ "$status" -ne 0 ]; then
    echo
    echo "swift test ended with $status. What failed:"
    # The line of an issue and the two after it, which hold its comment; lines of passing tests say nothing here.
    grep -E -A2 '✘ .*recorded an issue|error: |Fatal error|unexpected signal' "$log" |
        grep -vE '^(--|[◇✔] |━ )' | cut -c1-600 | tail -n 40
    grep -E '✘ (Test|Suite) .* failed after' "$log" | cut -c1-200 | tail -n 20
fi
exit "$status"
