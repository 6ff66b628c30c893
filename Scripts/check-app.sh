#!/usr/bin/env bash
# What an app is given that depends on this package: resolves, in a package of its own, what an app resolves, and builds what it
# builds. An app resolves swift-http-types and nothing else; the traits NIO and MBTiles add what they need, and no tools.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# Those are for working on the package itself.
unset TILECACHE_TOOLS TILECACHE_STRICT TILECACHE_DOCS
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$root" "$work/swift-tile-cache"
app=$work/app

# package TRAITS PRODUCTS: an app's Package.swift.
package() {
    mkdir -p "$app/Sources/App"
    local product products=""
    for product in $2; do products+=".product(name: \"$product\", package: \"swift-tile-cache\"), "; done
    cat >"$app/Package.swift" <<SWIFT
// swift-tools-version: 6.2
import PackageDescription

let package = Package(
    name: "App",
    platforms: [.macOS(.v13), .iOS(.v16), .tvOS(.v16), .visionOS(.v1)],
    dependencies: [.package(path: "../swift-tile-cache", traits: [$1])],
    targets: [.executableTarget(name: "App", dependencies: [$products])])
SWIFT
}
# resolved: the names of the packages that the app has resolved, in one line.
resolved() {
    rm -f "$app/Package.resolved"
    swift package --package-path "$app" resolve >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    sed -n 's/.*"identity" : "\(.*\)",/\1/p' "$app/Package.resolved" | sort | tr '\n' ' '
}
# expect WHAT WANTED FOUND
expect() {
    [ "$2" = "$3" ] || { echo "check-app: $1 resolves: $3; it should be: $2" >&2; exit 1; }
}

# The package of Docs/snippets.md, as it stands there: an app with a map alone.
mkdir -p "$app/Sources/HikingMap"
echo 'import TileCacheMapKit' >"$app/Sources/HikingMap/main.swift"
awk '/^<!-- snippet: package -->$/ { marked = 1 } /^```/ { inside = marked && !inside; if (!inside) marked = 0; next }
    inside { print }' "$root/Docs/snippets.md" >"$app/Package.swift"
expect "an app with TileCacheMapKit alone" "swift-http-types " "$(resolved)"

package "" "TileCache TileCacheMapKit TileCacheArchive TileArchive TileCacheNIO TileStore TileImaging"
cat >"$app/Sources/App/main.swift" <<'SWIFT'
import Foundation
import TileArchive
import TileCache
import TileCacheArchive
import TileCacheMapKit
import TileCacheNIO

let source = try TileSource("topo", template: "https://tiles.example/{z}/{x}/{y}.png")
print(source.name)
_ = try TileSource("base", archiveAt: "https://files.example/base.pmtiles")
_ = try TileSource("map", archiveAt: "https://files.example/maps/set.json", version: "1a2b3c4d")
do {
    var map = MapCacheConfiguration(archive: URL(fileURLWithPath: "map.mbtiles"))
    map.baseURL = URL(fileURLWithPath: CommandLine.arguments[1])
    _ = try MapCache(map)
    print("opened")
} catch let error as ArchiveError {
    print(error)
}
SWIFT
expect "an app" "swift-http-types " "$(resolved)"

swift build --package-path "$app" --product App >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
said=$("$app/.build/debug/App" "$work/cache")
case $said in
    topo*"map.mbtiles"*MBTiles*"[unsupported]") ;;
    *) echo "check-app: the app said: $said" >&2; exit 1 ;;
esac

package '"MBTiles"' "TileCache TileArchive"
expect "an app with MBTiles" "grdb.swift swift-http-types " "$(resolved)"

package '"NIO"' "TileCache TileCacheNIO"
found=$(resolved)
for name in async-http-client swift-nio swift-nio-ssl swift-nio-http2 swift-http-types; do
    case " $found" in *" $name "*) ;; *) expect "an app with NIO" "$name and others" "$found" ;; esac
done
for name in swift-argument-parser yams grdb.swift; do
    case " $found" in *" $name "*) expect "an app with NIO" "no $name" "$found" ;; esac
done
echo "check-app: an app resolves swift-http-types alone and builds; the traits NIO and MBTiles add what they need"
