#!/usr/bin/env bash
# What imports may not say and the compiler does not check. That a target imports no target of this package that Package.swift
# does not give it is checked by `make test`'s build (--explicit-target-dependency-import-check).
set -euo pipefail
cd "$(dirname "$0")/.."
status=0

# importers MODULES PATH...: lines of Swift code that import one of the modules.
importers() {
    local modules=$1
    local attributes='(@[A-Za-z_()]+ +)*((public|package|internal|fileprivate|private) +)?'
    local kind='((struct|class|enum|protocol|func|var|let|typealias) +)?'
    shift
    grep -rnE --include='*.swift' "^[[:space:]]*${attributes}import +$kind($modules)\b" "$@" || true
}
# forbid REASON MODULES PATH...: none of the paths imports one of the modules.
forbid() {
    local reason=$1 found
    shift
    found=$(importers "$@")
    if [ -n "$found" ]; then
        printf 'check-imports: %s\n%s\n' "$reason" "$found" >&2
        status=1
    fi
}
# only REASON MODULES TARGET...: no target but these imports one of the modules. A target need not exist.
only() {
    local reason=$1 modules=$2 target others=()
    shift 2
    for target in Sources/*/; do
        case " $* " in *" $(basename "$target") "*) ;; *) others+=("$target") ;; esac
    done
    forbid "$reason" "$modules" "${others[@]}"
}

# Modules of other packages and of the system, by the targets that may import them.
only "tests import test libraries" 'Testing|XCTest'
only "the tools read command lines" 'ArgumentParser' tilegc tileproxy
only "ContentCoding touches zlib" 'CZlib' ContentCoding
only "tileproxy sets the limits of its heap" 'CMalloc' tileproxy
only "TileArchive touches SQLite" 'GRDB|GRDBSQLite|SQLite3' TileArchive
only "TileImaging touches image libraries" 'CTileImaging|ImageIO|CoreGraphics' TileImaging TileCacheMapKit
only "TileCacheMapKit touches MapKit" 'MapKit|UIKit|AppKit|SwiftUI' TileCacheMapKit
only "the proxy, its listener and its command write logs" 'Logging' TileProxyServer HTTPListener tileproxy
only "the transport is over async-http-client" 'AsyncHTTPClient' TileCacheNIO
only "the transport and the proxy have event loops" 'NIO[A-Za-z0-9]*' \
    TileCacheNIO TileProxyServer HTTPWire HTTPListener OriginClient ObjectStorage SharedTier
only "the store and what reads or draws tiles know no HTTP" 'HTTPTypes' \
    HTTPCaching CacheEngine TileCache TileCacheNIO TileCacheMapKit TileProxyServer HTTPWire HTTPListener OriginClient ObjectStorage \
    tilegc
forbid "geometry and the rules of HTTP need no Foundation, threads or files" 'Foundation[A-Za-z]*|Dispatch|Synchronization' \
    Sources/TileGeometry Sources/HTTPCaching

# Files and folders within a target.
forbid "two files touch the cryptographic library: the store's hash and the hashes of S3's signatures" 'CLibcrypto|CryptoKit' \
    $(find Sources -name '*.swift' ! -path Sources/TileStore/Blobs/SHA256.swift \
        ! -path Sources/ObjectStorage/Signing/SigningHashes.swift)
forbid "one folder asks by URLSession, and one answers it" 'FoundationNetworking' \
    $(find Sources -name '*.swift' ! -path 'Sources/TileCache/Transport/*' ! -path 'Sources/TileCache/URLLoading/*')
forbid "what can do without MapKit does" 'MapKit|SwiftUI|UIKit|AppKit|CoreGraphics|ImageIO' Sources/TileCacheMapKit/Logic
forbid "one folder of the proxy opens archives" 'TileArchive|TileCacheArchive' \
    $(find Sources/TileProxyServer -name '*.swift' ! -path 'Sources/TileProxyServer/Archives/*')
forbid "the proxy's configuration alone reads YAML" 'Yams' \
    $(find Sources -name '*.swift' ! -path 'Sources/TileProxyServer/Config/*')
forbid "the proxy's page and figures ask no origin" 'OriginClient' \
    Sources/TileProxyServer/Page Sources/TileProxyServer/Metrics Sources/TileProxyServer/Ready
forbid "the proxy's client towards origins alone speaks TLS" 'NIOSSL' \
    $(find Sources/TileProxyServer -name '*.swift' ! -name 'ProxyConfiguration+TLS.swift')
forbid "the proxy has one client towards origins" 'TileCacheNIO' Sources/TileProxyServer Sources/tileproxy
[ "$status" = 0 ] && echo "check-imports: ok"
exit "$status"
