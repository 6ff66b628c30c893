#!/usr/bin/env bash
# Fuzzing with coverage (libFuzzer, with the address sanitizer), of everything that takes bytes from outside.
#
#   fuzz.sh                      each target for 30 seconds, two at a time
#   SECONDS_EACH=3600 TARGETS="pmtiles set" fuzz.sh
#   NO_BUILD=1 fuzz.sh           with the program that is there
#
# Starts from Tests/FuzzCorpus and keeps what it finds in .build-fuzz/corpus. What breaks a promise is left in .build-fuzz/found.
set -euo pipefail
cd "$(dirname "$0")/.."
export TILECACHE_TOOLS=1 TILECACHE_FUZZ=1
[ "$(uname)" = Linux ] || { echo "fuzz: the toolchain's libFuzzer is for Linux" >&2; exit 1; }
build=(swift build -c release --product fuzz --scratch-path .build-fuzz)
[ -n "${NO_BUILD:-}" ] || "${build[@]}"
program=$("${build[@]}" --show-bin-path)/fuzz
seconds=${SECONDS_EACH:-30}
known=$("$program")
targets=${TARGETS:-$known}
for target in $targets; do
    grep -qxF -- "$target" <<<"$known" || { echo "fuzz: there is no target $target; there are: "$known >&2; exit 64; }
done
found=$PWD/.build-fuzz/found
mkdir -p "$found"

# fuzz TARGET: its log is shown if it ends badly.
fuzz() {
    local corpus=.build-fuzz/corpus/$1 log=.build-fuzz/$1.log
    mkdir -p "$corpus"
    if "$program" "$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
        -artifact_prefix="$found/$1-" -print_final_stats=1 "$corpus" "Tests/FuzzCorpus/$1" >"$log" 2>&1; then
        awk -v target="$1" '/stat::number_of_executed_units/ { runs = $2 } /stat::average_exec_per_sec/ { rate = $2 }
            / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
            END { printf "fuzz: %-18s %9d inputs, %6d a second, %5d edges: nothing found\n", target, runs, rate, cov }' "$log"
    else
        tail -n 40 "$log" >&2
        echo "fuzz: $1 broke a promise; its input is in $found" >&2
        return 1
    fi
}

status=0
running=()
for target in $targets; do
    fuzz "$target" &
    running+=($!)
    if [ ${#running[@]} -ge 2 ]; then
        wait "${running[0]}" || status=1
        running=("${running[@]:1}")
    fi
done
for one in ${running[@]+"${running[@]}"}; do wait "$one" || status=1; done
exit "$status"
