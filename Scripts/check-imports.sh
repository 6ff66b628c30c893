#!/usr/bin/env bash
# The arrows between targets point down: the store knows nothing of HTTP, event loops or command lines.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0

# importers MODULES FOLDER...: lines of Swift code that import one of the modules.
importers() {
    local modules=$1
    local attributes='(@[A-Za-z_()]+ +)*((public|package|internal|fileprivate|private) +)?'
    local kind='((struct|class|enum|protocol|func|var|let|typealias) +)?'
    shift
    grep -rnE --include='*.swift' "^[[:space:]]*${attributes}import +$kind($modules)\b" "$@" || true
}
forbid() {
    local reason=$1 found
    shift
    found=$(importers "$@")
    if [ -n "$found" ]; then
        printf 'check-imports: %s\n%s\n' "$reason" "$found" >&2
        status=1
    fi
}

forbid "TileGeometry is arithmetic on the standard library" \
    'Foundation[A-Za-z]*|Dispatch|Synchronization|[A-Z][A-Za-z]*Crypto[A-Za-z]*|CLibcrypto|HTTP[A-Za-z]*|NIO[A-Za-z]*|Tile[A-Za-z]*' \
    Sources/TileGeometry
above='HTTPTypes|HTTPCaching|NIO[A-Za-z]*|AsyncHTTPClient|FoundationNetworking|ArgumentParser|MapKit|SQLite3'
above="$above|TileCache[A-Za-z]*|TileArchive"
forbid "TileStore is bytes on disk only" \
    "$above" Sources/TileStore
forbid "HTTPCaching is rules on values" \
    "TileStore|TileCache[A-Za-z]*|TileArchive|NIO[A-Za-z]*|AsyncHTTPClient|FoundationNetworking|ArgumentParser|MapKit" \
    Sources/HTTPCaching
forbid "an app that imports TileCache gets no server" \
    "NIO[A-Za-z]*|AsyncHTTPClient|ArgumentParser|MapKit|SQLite3|GRDB|TileCacheNIO|TileArchive" \
    Sources/TileCache
forbid "only one file of TileCache speaks to URLSession" 'FoundationNetworking' \
    $(find Sources/TileCache -name '*.swift' ! -name URLSessionTransport.swift)
forbid "TileCacheNIO is a transport" 'FoundationNetworking|ArgumentParser|MapKit|SQLite3|TileArchive' \
    Sources/TileCacheNIO
forbid "TileCacheMapKit is an adapter" 'FoundationNetworking|NIO[A-Za-z]*|AsyncHTTPClient|ArgumentParser|SQLite3|GRDB|TileCacheNIO|TileArchive' \
    Sources/TileCacheMapKit
forbid "what can do without MapKit does" 'MapKit|UIKit|AppKit|CoreGraphics|ImageIO' Sources/TileCacheMapKit/Logic
forbid "only TileCacheMapKit touches MapKit" 'MapKit' \
    $(find Sources -mindepth 1 -maxdepth 1 -type d ! -name TileCacheMapKit)
forbid "test support is for tests" 'TileStoreTesting|TileCacheTesting|Testing|XCTest' Sources
forbid "only tilegc and tileproxy read command lines" 'ArgumentParser' \
    $(find Sources -mindepth 1 -maxdepth 1 -type d ! -name tilegc ! -name tileproxy)
forbid "archives know nothing of HTTP or command lines" \
    "HTTPTypes|HTTPCaching|NIO[A-Za-z]*|AsyncHTTPClient|FoundationNetworking|ArgumentParser|MapKit|TileCache[A-Za-z]*" \
    Sources/TileArchive
forbid "only ContentCoding touches zlib" 'CZlib' \
    $(find Sources -mindepth 1 -maxdepth 1 -type d ! -name ContentCoding)
forbid "only TileImaging touches image libraries" 'CTileImaging|ImageIO|CoreGraphics' \
    $(find Sources -mindepth 1 -maxdepth 1 -type d ! -name TileImaging ! -name 'TileCacheMapKit*')
forbid "pictures know nothing of HTTP, archives or command lines" \
    "HTTPTypes|HTTPCaching|NIO[A-Za-z]*|AsyncHTTPClient|FoundationNetworking|ArgumentParser|MapKit|TileCache[A-Za-z]*|TileArchive" \
    Sources/TileImaging
forbid "an app that imports TileCache links no image library" 'TileImaging' Sources/TileStore Sources/TileCache
forbid "only TileArchive touches SQLite" 'GRDB|GRDBSQLite|SQLite3' \
    $(find Sources -mindepth 1 -maxdepth 1 -type d ! -name TileArchive)
forbid "archives as sources join two targets, and know nothing of servers" \
    "HTTPTypes|HTTPCaching|NIO[A-Za-z]*|AsyncHTTPClient|FoundationNetworking|ArgumentParser|MapKit|TileCacheNIO" \
    Sources/TileCacheArchive
forbid "the server is a server: no command lines, no tests' things" \
    "ArgumentParser|MapKit|SQLite3" Sources/TileProxyServer
forbid "one file of the server opens archives" 'TileArchive|TileCacheArchive' \
    $(find Sources/TileProxyServer -name '*.swift' ! -name ArchiveOfSource.swift)
forbid "the HTTP server and the client towards origins know nothing of tiles" \
    "TileStore|TileCache[A-Za-z]*|TileArchive" Sources/TileProxyServer/HTTP Sources/TileProxyServer/Upstream
forbid "only the tools read command lines" 'ArgumentParser' \
    $(find Sources -mindepth 1 -maxdepth 1 -type d ! -name tilegc ! -name tileproxy)
forbid "only the proxy's configuration reads YAML" 'Yams' \
    $(find Sources -mindepth 1 -maxdepth 1 -type d ! -name TileProxyServer) \
    $(find Sources/TileProxyServer -name '*.swift' ! -path '*/Config/*')
forbid "routes and page speak to origins through the cache alone" 'AsyncHTTPClient|TileCacheNIO|NIOSSL' \
    Sources/TileProxyServer/Tiles Sources/TileProxyServer/Page Sources/TileProxyServer/Metrics
forbid "only SHA256.swift touches libcrypto" 'CLibcrypto' \
    $(find Sources -name '*.swift' ! -name SHA256.swift)
[ "$status" = 0 ] && echo "check-imports: ok"
exit "$status"
