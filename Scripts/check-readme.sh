#!/usr/bin/env bash
# Runs the commands of README.md (its console block, whose output must be what tilegc prints) and of Docs/getting-started.md
# (every ```sh block that follows a line `<!-- run -->`, in order, in one shell), in a temporary folder, with tilegc on the
# PATH. `make` commands are checked to be targets; they are too slow to run here. The library example is run too, and links
# to files must lead to files.
set -euo pipefail
export TILECACHE_TOOLS=1
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Every `make X` in a block must exist.
for target in $(awk '/^```/ { inside = !inside } inside && /^make / { print $2 }' README.md Docs/getting-started.md | sort -u); do
    grep -q "^$target:" Makefile && continue
    echo "check-readme: README.md or Docs/getting-started.md mentions make $target, which does not exist" >&2
    exit 1
done

# Every link to a file must lead to one.
while IFS=: read -r file link; do
    path=${link#](}
    path=${path#*]: }
    path=${path%%[#)]*}
    [ -n "$path" ] && [ ! -e "$(dirname "$file")/$path" ] || continue
    echo "check-readme: $file links to $path, which does not exist" >&2
    exit 1
done < <(grep -oE '\]\([^):]+\)|^\[[a-z0-9-]+\]: [^:]+$' ./*.md Docs/*.md Docs/model/*.md Sample/*.md)

# Each row of the migration's tables must name tests that exist: `NAME` in Tests/TileCacheMapKitTests, or `FOLDER/NAME`.
rows=0
while IFS='|' read -r _ what _ tests _; do
    names=$(grep -oE '`[^`]+`' <<<"$tests" | tr -d '`') || {
        echo "check-readme: Docs/migrating-from-mapcache.md names no test for$what" >&2
        exit 1
    }
    for name in $names; do
        case $name in */*) folder=${name%/*} ;; *) folder=TileCacheMapKitTests ;; esac
        grep -rqw "func ${name##*/}" "Tests/$folder" && continue
        echo "check-readme: Docs/migrating-from-mapcache.md names the test $name, which does not exist" >&2
        exit 1
    done
    rows=$((rows + 1))
done < <(grep '^|' Docs/migrating-from-mapcache.md | grep -vE '^\|---|\| test \|$')
[ "$rows" -gt 50 ] || { echo "check-readme: only $rows rows found in Docs/migrating-from-mapcache.md" >&2; exit 1; }

awk '
    /^<!-- run -->$/ { marked = 1; next }
    /^```sh$/ && marked { inside = 1; marked = 0; next }
    /^```/ { inside = 0; marked = 0; next }
    inside { print }
' Docs/getting-started.md >"$work/commands.sh"
count=$(grep -c . "$work/commands.sh" || true)
if [ "$count" -lt 5 ]; then
    echo "check-readme: only $count commands found in Docs/getting-started.md" >&2
    exit 1
fi

scratch=${SCRATCH:-.build}
for product in tilegc StoreATile; do
    [ -n "${NO_BUILD:-}" ] || swift build -c release --product "$product" --scratch-path "$scratch" >"$work/build.log" 2>&1 || {
        cat "$work/build.log" >&2
        exit 1
    }
done
PATH="$(swift build -c release --scratch-path "$scratch" --show-bin-path):$PATH"
export PATH
mkdir "$work/readme" "$work/tour"
ln -s "$root/Sample" "$work/readme/Sample"
ln -s "$root/Sample" "$work/tour/Sample"

# The console block: each command runs, and prints the lines below it, times aside; a line `…` stands for others.
shown=$(cd "$work/readme" && python3 - "$root/README.md" <<'PYTHON'
import re, subprocess, sys
block = re.search(r"^```console\n(.*?)^```", open(sys.argv[1]).read(), re.M | re.S)
steps = []
for line in block.group(1).splitlines() if block else []:
    if line.startswith("$ "):
        steps.append((line[2:], []))
    elif line != "…":
        steps[-1][1].append(line)
timeless = lambda line: re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", line)
for command, expected in steps:
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    printed = [timeless(line) for line in done.stdout.splitlines()]
    missing = [line for line in expected if timeless(line) not in printed]
    if done.returncode or missing:
        sys.exit(f"check-readme: README.md shows what `{command}` does not print: {missing}\n{done.stdout}{done.stderr}")
print(len(steps))
PYTHON
)
[ "$shown" -ge 10 ] || { echo "check-readme: only $shown commands found in README.md" >&2; exit 1; }

if ! (cd "$work/tour" && bash -euo pipefail -x "$work/commands.sh") >"$work/output" 2>&1; then
    cat "$work/output" >&2
    echo "check-readme: a command in Docs/getting-started.md failed" >&2
    exit 1
fi

# The ```swift block that follows `<!-- run -->` is the program Examples/StoreATile, which must run.
awk '
    /^<!-- run -->$/ { marked = 1; next }
    /^```swift$/ && marked { inside = 1; marked = 0; next }
    /^```/ { inside = 0; marked = 0; next }
    inside { print }
' Docs/getting-started.md >"$work/main.swift"
diff "$work/main.swift" Examples/StoreATile/main.swift || {
    echo "check-readme: the library example in Docs/getting-started.md is not Examples/StoreATile/main.swift" >&2
    exit 1
}
if ! (cd "$work/tour" && StoreATile) >"$work/example.log" 2>&1; then
    cat "$work/example.log" >&2
    echo "check-readme: the library example in Docs/getting-started.md failed" >&2
    exit 1
fi
echo "check-readme: $shown commands with their output, $count lines of commands and the library example ran"
