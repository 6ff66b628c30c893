#!/usr/bin/env bash
# Runs the public HTTP cache suite (github.com/http-tests/cache-tests) against tileproxy, and fails where a required test
# fails or fewer pass than are known to.
# Usage: Scripts/check-cache-tests.sh FOLDER      a checkout of the suite in which `npm install` has been run; needs node
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
least=328
suite=$(cd "${1:?usage: check-cache-tests.sh FOLDER, a checkout of http-tests/cache-tests}" && pwd)
scratch=${SCRATCH:-.build}
configuration=${CONFIGURATION:-release}
[ -n "${NO_BUILD:-}" ] || swift build -c "$configuration" --product tileproxy --scratch-path "$scratch" >&2
proxy=$(swift build -c "$configuration" --scratch-path "$scratch" --show-bin-path)/tileproxy

work=$(mktemp -d)
started=()
finish() {
    for process in "${started[@]}"; do
        kill "$process" 2>/dev/null || true
        wait "$process" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap finish EXIT
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
until_open() {
    for _ in $(seq 1 300); do
        if (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        sleep 0.1
    done
    echo "check-cache-tests: nothing listens on port $1" >&2
    exit 1
}

origin_port=$(free_port)
(cd "$suite" && exec env npm_config_protocol=http npm_config_port="$origin_port" npm_config_pidfile="$work/pid" \
    node test-engine/server/server.mjs) >"$work/origin.log" 2>&1 &
started+=($!)
until_open "$origin_port"
proxy_port=$(free_port)
"$proxy" serve --cache "$work/cache" --port "$proxy_port" --upstream "/=http://127.0.0.1:$origin_port" >"$work/proxy.log" 2>&1 &
started+=($!)
until_open "$proxy_port"

(cd "$suite" && npm_config_base="http://127.0.0.1:$proxy_port" npm_package_config_id= node --no-warnings test-engine/cli.mjs) \
    >"$work/results.json"
node --input-type=module - "$suite" "$work/results.json" "$least" <<'NODE'
import fs from 'node:fs'
const [suite, results, least] = process.argv.slice(2)
const { determineTestResult, resultTypes } = await import(`${suite}/test-engine/lib/results.mjs`)
const groups = (await import(`${suite}/tests/index.mjs`)).default
const found = JSON.parse(fs.readFileSync(results, 'utf8'))
// Some are for browsers alone; the runner leaves them out.
const tests = groups.flatMap(group => group.tests).filter(test => test.browser_only !== true)
const failed = []
let passed = 0
let required = 0
for (const test of tests) {
  if (found[test.id] === true) { passed += 1; continue }
  const isRequired = test.kind === undefined || test.kind === 'required'
  const result = determineTestResult(groups, test.id, found, false)
  if (!isRequired) continue
  required += 1
  const words = found[test.id] === undefined ? 'not run' : found[test.id].join(': ')
  console.log(`required, not passed: ${test.id} (${words})`)
  // A test whose set-up this machine or node cannot make says nothing about the cache.
  if (result !== resultTypes.setup_fail) failed.push(test.id)
}
console.log(`check-cache-tests: ${passed} of ${tests.length} pass; required: ${required} not passed, ${failed.length} failed`)
if (failed.length > 0 || passed < Number(least)) process.exit(1)
NODE
