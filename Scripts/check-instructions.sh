#!/usr/bin/env bash
# Counts the instructions of a hit, a put and an opened entry with callgrind and compares them with
# Benchmarks/instructions.json. Counts hardly depend on how busy the machine is, so a change of a few per cent is one of
# the code, or of the compiler: then, and when it is meant, run it with --update and commit the file. Where a run gets next
# to no processor time, what the clock drives (looks at the journal, flushes) falls on fewer operations and shows.
#
#   check-instructions.sh [--update] [--runs N]
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
update="" runs=1
while [ $# -gt 0 ]; do
    case $1 in
        --update) update=1 ;;
        --runs) runs=$2; shift ;;
        *) echo "usage: check-instructions.sh [--update] [--runs N]" >&2; exit 2 ;;
    esac
    shift
done
for tool in valgrind python3; do
    command -v "$tool" >/dev/null || { echo "check-instructions: $tool is missing (apt-get install valgrind python3)" >&2; exit 1; }
done
scratch=${SCRATCH:-Benchmarks/.build}
if [ -z "${NO_BUILD:-}" ]; then
    swift build -c release --package-path Benchmarks --scratch-path "$scratch" --product bench-child >&2
fi
export BENCH_CHILD=$scratch/release/bench-child
exec python3 Scripts/check-instructions.py ${update:+--update} --runs "$runs"
