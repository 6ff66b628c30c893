#!/usr/bin/env bash
# Compiles the MapKit adapter and its example against a module of MapKit's signatures, and runs the adapter's tests.
# Only on Linux: an Apple platform has the real MapKit, and there `swift test` runs the same tests.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(uname)" = Linux ] || { echo "check-mapkit: this system has a MapKit of its own; run swift test"; exit 0; }

# This manifest needs one package alone; the pins of the others are put back, so that they are not resolved anew.
pins=$(mktemp)
cp Package.resolved "$pins" 2>/dev/null || rm -f "$pins"
trap 'if [ -f "$pins" ]; then cat "$pins" >Package.resolved; rm "$pins"; else rm -f Package.resolved; fi' EXIT

# A scratch folder of its own, since another manifest would have everything else built anew each time. Debug builds: what
# is checked are types and decisions, no speed.
export TILECACHE_MAPKIT_STUB=1
swift build --build-tests --scratch-path .build-mapkit
swift test --skip-build --scratch-path .build-mapkit
# What no target here can compile is at least Swift.
swiftc -frontend -parse Examples/MapKitDemo/*.swift
echo "check-mapkit: ok (against a stand-in for MapKit)"
