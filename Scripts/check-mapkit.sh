#!/usr/bin/env bash
# Only on Linux, after the strict build, which has compiled the MapKit adapter, its tests and its example against a module
# of MapKit's signatures: checks what that build does not, that the adapter's portable part compiles without MapKit and that
# what no target here can compile is at least Swift.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(uname)" = Linux ] || { echo "check-mapkit: this system has a MapKit of its own; run swift test"; exit 0; }

modules=${SCRATCH:?}/release/Modules
# The package's name, which opens what is `package`, is the one that the build has used.
name=$(grep -F '"-module-name","TileCacheMapKit"' "$SCRATCH/release.yaml" |
    grep -oE '"-package-name","[^"]+"' | head -1 | cut -d'"' -f4)
swiftc -typecheck -swift-version 6 -package-name "$name" -module-name TileCacheMapKit -I "$modules" \
    -Xcc -fmodule-map-file=Sources/CLibcrypto/module.modulemap -Xcc -fmodule-map-file=Sources/CZlib/module.modulemap \
    Sources/TileCacheMapKit/*.swift Sources/TileCacheMapKit/Logic/*.swift
swiftc -frontend -parse Examples/MapKitDemo/*.swift
echo "check-mapkit: ok (against a stand-in for MapKit)"
