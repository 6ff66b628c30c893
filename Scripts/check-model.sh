#!/usr/bin/env bash
# Checks the model of the store's protocol with spin: a small configuration must be clean, exhaustively, and broken
# variants of it must be found out (or the check itself would be worth nothing).
set -euo pipefail
model=$(cd "$(dirname "$0")/.." && pwd)/Docs/model/store-protocol.pml
work=$(mktemp -d)
protocol=""
trap '[ -z "$protocol" ] || kill "$protocol" 2>/dev/null || true; rm -rf "$work"' EXIT

# explore NAME FLAG...: leaves spin's report in $work/NAME/report
explore() {
    local folder="$work/$1"
    shift
    mkdir "$folder"
    (
        cd "$folder"
        cpp -P "$@" "$model" >model.pml
        spin -a model.pml >spin.log || { cat spin.log >&2; exit 1; }
        gcc "$optimise" -w -DSAFETY -DNOFAIR -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c
        # -m: search depth, -w: hash table, -E: a process that waits for ever is no error (locks are modelled so)
        ./pan -m200000 -w24 -E >report
    )
}
errors() { sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$work/$1/report"; }
states() { sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$work/$1/report"; }

small="-DROBUST -DNW0=1 -DNW1=1 -DNR=1 -DNRT=1 -DMAXC=1"

# The search of the whole protocol takes as long as all faulty variants together, so it runs beside them.
optimise=-O2
# shellcheck disable=SC2086 # a list of flags
explore protocol $small &
protocol=$!

# Errors are found early, so these runs take less time than the compiler does.
optimise=-O0
for fault in V_APPEND_FIRST V_UNLINK_FIRST V_NOCATCHUP V_TRUNC_NOLOCK V_BYEXIST V_DELETE_FIRST V_ANYLENGTH; do
    # This one shows where a blob goes and comes back: it takes a second operation.
    [ "$fault" = V_ANYLENGTH ] && more="-UNW0 -DNW0=2" || more=""
    # shellcheck disable=SC2086
    explore "$fault" $small $more "-D$fault"
    if [ "$(errors "$fault")" = 0 ]; then
        cat "$work/$fault/report" >&2
        echo "check-model: the faulty variant $fault was not found out" >&2
        exit 1
    fi
    echo "check-model: faulty variant $fault found out"
done

wait "$protocol"
protocol=""
if [ "$(errors protocol)" != 0 ] || grep -q 'not completed\|depth too small' "$work/protocol/report"; then
    cat "$work/protocol/report" >&2
    echo "check-model: the protocol fails, or was not searched to the end" >&2
    exit 1
fi
echo "check-model: two writers, a reader, a rotator, one crash: $(states protocol) states, no error"
