#!/usr/bin/env bash
# On Linux the strict build compiles the MapKit adapter, its tests and its example against modules with the signatures of MapKit
# and SwiftUI. This script, which runs after it, checks the rest: the portable part compiles without them, the adapter's branch for
# macOS compiles too, the code that only Apple platforms compile parses, and the snippets of Docs/snippets.md compile as they stand.
set -euo pipefail
export TILECACHE_TOOLS=1
cd "$(dirname "$0")/.."
[ "$(uname)" = Linux ] || { echo "check-mapkit: this system has a MapKit of its own; run swift test"; exit 0; }

modules=${SCRATCH:?}/release/Modules
# The -package-name of the build, for access to `package` declarations.
name=$(grep -F '"-module-name","TileCacheMapKit"' "$SCRATCH/release.yaml" |
    grep -oE '"-package-name","[^"]+"' | head -1 | cut -d'"' -f4)
# The module maps of C targets, as the build has them.
maps=()
while read -r map; do maps+=(-Xcc "$map"); done < <(grep -oE -- '-fmodule-map-file=[^"]+' "$SCRATCH/release.yaml" | sort -u)
check() { swiftc -typecheck -warnings-as-errors -swift-version 6 -I "$modules" "${maps[@]}" "$@"; }
adapter() {
    check -package-name "$name" -module-name TileCacheMapKit -enable-upcoming-feature ExistentialAny \
        -enable-upcoming-feature MemberImportVisibility -enable-upcoming-feature InternalImportsByDefault "$@"
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

adapter Sources/TileCacheMapKit/*.swift Sources/TileCacheMapKit/Logic/*.swift
# The branch for macOS, as if this were one.
grep -q '^#if os(macOS)$' Sources/TileCacheMapKit/MapKit/CachedMapView.swift
sed 's/^#if os(macOS)$/#if os(Linux)/' Sources/TileCacheMapKit/MapKit/CachedMapView.swift >"$work/CachedMapView.swift"
adapter Sources/TileCacheMapKit/*.swift Sources/TileCacheMapKit/Logic/*.swift "$work/CachedMapView.swift" \
    $(find Sources/TileCacheMapKit/MapKit -name '*.swift' ! -name CachedMapView.swift)
swiftc -frontend -parse Examples/MapKitDemo/*.swift

# The snippets: each ```swift block behind `<!-- snippet: NAME -->`, in a file of its own.
mkdir "$work/snippets"
awk -v folder="$work/snippets" '
    /^<!-- snippet: [a-z]+ -->$/ { name = $3; next }
    /^```swift$/ { if (!name) { print "line " NR ": a block without a name"; exit 1 } inside = 1; next }
    /^```/ { if (inside && lines > 12) { print name " has " lines " lines; 12 are possible"; exit 1 } inside = lines = 0; name = "" }
    inside { print > (folder "/" name ".swift"); lines++ }
' Docs/snippets.md || { echo "check-mapkit: Docs/snippets.md is not as it should be" >&2; exit 1; }
for stub in MapLibre Hummingbird; do
    swiftc -emit-module -module-name "$stub" -swift-version 6 -I "$modules" "${maps[@]}" -o "$work/$stub.swiftmodule" \
        "Tests/SnippetStubs/$stub.swift"
done
for snippet in mapview region maplibre server; do check -I "$work" "$work/snippets/$snippet.swift"; done
api=$(dirname "$(dirname "$(readlink -f "$(command -v swiftc)")")")/lib/swift/pm/ManifestAPI
swiftc -typecheck -warnings-as-errors -swift-version 6 -package-description-version 6.2.0 -I "$api" "$work/snippets/package.swift"
found=$(find "$work/snippets" -name '*.swift' | wc -l)
[ "$found" = 5 ] || { echo "check-mapkit: Docs/snippets.md has $found snippets; five are checked" >&2; exit 1; }
echo "check-mapkit: ok"
