// swift-tools-version: 6.2
import PackageDescription

/// One set of compiler settings for every target: Swift 6 mode and the upcoming features that keep imports honest.
var settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]
if Context.environment["TILECACHE_STRICT"] != nil {
    // What CI builds with, for release and still open to tests of what is internal. Not the default: a new compiler's new
    // warning must not break somebody's app.
    settings.append(.unsafeFlags(["-warnings-as-errors", "-enable-testing"]))
}
/// Whether `fuzz` is wanted, and all of the package instrumented for it.
let fuzzes = Context.environment["TILECACHE_FUZZ"] != nil
if fuzzes { settings.append(.unsafeFlags(["-sanitize=fuzzer,address", "-enable-testing"])) }

/// The settings of the tests, and of tilegc's commands, which come last in the first minutes of `make run`.
let testSettings = settings
if Context.environment["TILECACHE_STRICT"] != nil {
    // `make run` and `make test` build with `-Onone`: packages are compiled in a third of the time so, and tests in half. What is tested
    // is optimised as it is in a release: of two such flags the compiler proper heeds the later one.
    settings.append(.unsafeFlags(["-Xfrontend", "-O"]))
}

/// Whether the package's programs, its servers and all tests are wanted, with what only they depend on.
///
/// `make` sets it. An app that depends on the package resolves none of that.
let tools = Context.environment["TILECACHE_TOOLS"] != nil

#if os(Linux)
/// Where zlib's flags come from; Apple's SDKs have it where the compiler looks.
let zlib: String? = "zlib"
/// What an app's review on Apple's platforms asks of targets that look at files' times and the free space.
let (privacy, withoutPrivacy): ([Resource], [String]) = ([], ["PrivacyInfo.xcprivacy"])
#else
let zlib: String? = nil
let (privacy, withoutPrivacy): ([Resource], [String]) = ([.copy("PrivacyInfo.xcprivacy")], [])
#endif

let package = Package(
    name: "swift-tile-cache",
    platforms: [.macOS(.v13), .iOS(.v16), .tvOS(.v16), .visionOS(.v1)],
    products: [
        .library(name: "TileCache", targets: ["TileCache"]),
        .library(name: "TileCacheNIO", targets: ["TileCacheNIO"]),
        .library(name: "TileStore", targets: ["TileStore"]),
        .library(name: "TileArchive", targets: ["TileArchive"]),
        .library(name: "TileCacheArchive", targets: ["TileCacheArchive"]),
        .library(name: "TileCacheMapKit", targets: ["TileCacheMapKit"]),
        .library(name: "TileImaging", targets: ["TileImaging"]),
    ],
    traits: [
        .trait(name: "NIO", description: "TileCacheNIO: a transport over async-http-client, for servers and Linux."),
        .trait(name: "MBTiles", description: "MBTiles files in TileArchive and TileCacheArchive, over GRDB (SQLite)."),
        .default(enabledTraits: tools ? ["NIO", "MBTiles"] : []),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-nio-http2", from: "1.46.0"),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
    ],
    targets: [
        .systemLibrary(
            name: "CLibcrypto",
            pkgConfig: "libcrypto",
            providers: [.apt(["libssl-dev"]), .brew(["openssl@3"])]),
        .systemLibrary(
            name: "CZlib",
            pkgConfig: zlib,
            providers: [.apt(["zlib1g-dev"]), .brew(["zlib"])]),
        .target(
            name: "TileGeometry",
            swiftSettings: settings),
        .target(
            name: "TileStore",
            dependencies: ["TileGeometry", .target(name: "CLibcrypto", condition: .when(platforms: [.linux]))],
            exclude: withoutPrivacy,
            resources: privacy,
            swiftSettings: settings),
        .target(
            name: "ContentCoding",
            dependencies: ["CZlib"],
            swiftSettings: settings),
        .target(
            name: "TileSets",
            dependencies: ["ContentCoding", "TileStore"],
            swiftSettings: settings),
        .target(
            name: "TileArchive",
            dependencies: [
                "TileStore",
                "TileSets",
                "ContentCoding",
                .product(name: "GRDB", package: "GRDB.swift", condition: .when(traits: ["MBTiles"])),
                .product(name: "GRDBSQLite", package: "GRDB.swift", condition: .when(traits: ["MBTiles"])),
            ],
            exclude: withoutPrivacy,
            resources: privacy,
            swiftSettings: settings),
        .target(
            name: "CTileImaging",
            // Elsewhere it is empty: Apple's systems have ImageIO.
            linkerSettings: ["png", "jpeg", "webp"].map { .linkedLibrary($0, .when(platforms: [.linux])) }),
        .target(
            name: "TileImaging",
            dependencies: ["TileStore", "CTileImaging"],
            swiftSettings: settings),
        .target(
            name: "HTTPCaching",
            dependencies: [.product(name: "HTTPTypes", package: "swift-http-types")],
            swiftSettings: settings),
        .target(
            name: "CacheEngine",
            dependencies: [
                "TileStore",
                "HTTPCaching",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            swiftSettings: settings),
        .target(
            name: "TileCache",
            dependencies: [
                "TileStore",
                "HTTPCaching",
                "CacheEngine",
                "ContentCoding",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            swiftSettings: settings),
        .target(
            name: "TileCacheNIO",
            dependencies: [
                "TileCache",
                "TileStore",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "AsyncHTTPClient", package: "async-http-client", condition: .when(traits: ["NIO"])),
                .product(name: "NIOCore", package: "swift-nio", condition: .when(traits: ["NIO"])),
                .product(name: "NIOHTTP1", package: "swift-nio", condition: .when(traits: ["NIO"])),
                .product(name: "NIOHTTP2", package: "swift-nio-http2", condition: .when(traits: ["NIO"])),
                .product(name: "NIOPosix", package: "swift-nio", condition: .when(traits: ["NIO"])),
                .product(name: "NIOSSL", package: "swift-nio-ssl", condition: .when(traits: ["NIO"])),
            ],
            swiftSettings: settings),
        .target(
            name: "TileCacheArchive",
            dependencies: ["CacheEngine", "HTTPCaching", "TileArchive", "TileCache", "TileSets", "TileStore"],
            swiftSettings: settings),
        .target(
            name: "TileCacheMapKit",
            dependencies: [
                "TileCache", "TileCacheArchive", "TileStore",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            swiftSettings: settings),
        .executableTarget(
            name: "OfflineMap",
            dependencies: [
                "TileCache",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            path: "Examples/OfflineMap",
            packageAccess: false,
            swiftSettings: settings),
        .executableTarget(
            name: "StoreATile",
            dependencies: ["TileStore"],
            path: "Examples/StoreATile",
            packageAccess: false,
            swiftSettings: settings),
    ],
    swiftLanguageModes: [.v6]
)

if tools {
    package.products += [
        .executable(name: "tilegc", targets: ["tilegc"]),
        .executable(name: "tileproxy", targets: ["tileproxy"]),
    ]
    package.dependencies += [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/jpsim/Yams", from: "6.2.2"),
    ]
    package.targets += [
        .target(
            name: "TileStoreTesting",
            dependencies: ["TileStore"],
            path: "Tests/Support/TileStoreTesting",
            swiftSettings: settings),
        .target(
            name: "TileArchiveTesting",
            dependencies: [
                "ContentCoding", "TileArchive", "TileSets", "TileStore",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            path: "Tests/Support/TileArchiveTesting",
            swiftSettings: settings),
        .target(
            name: "HTTPWire",
            dependencies: [
                "HTTPCaching",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: settings),
        .target(
            name: "HTTPListener",
            dependencies: [
                "HTTPWire",
                "HTTPCaching",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
                .product(name: "NIOHTTP2", package: "swift-nio-http2"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
            ],
            swiftSettings: settings),
        .target(
            name: "OriginClient",
            dependencies: [
                "HTTPWire",
                "HTTPCaching",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
            ],
            swiftSettings: settings),
        .target(
            name: "ObjectStorage",
            dependencies: [
                .target(name: "CLibcrypto", condition: .when(platforms: [.linux])),
                "TileStore",
                "HTTPCaching",
                "HTTPWire",
                "OriginClient",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: settings),
        .target(
            name: "SharedTier",
            dependencies: [
                "CacheEngine",
                "TileStore",
                "ObjectStorage",
                "OriginClient",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: settings),
        .target(
            name: "TileCacheTesting",
            dependencies: [
                "ObjectStorage",
                "SharedTier",
                "TileStore",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ],
            path: "Tests/Support/TileCacheTesting",
            swiftSettings: settings),
        .executableTarget(
            name: "transport-bench",
            dependencies: [
                "TileCache", "TileCacheNIO", "TileCacheTesting",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            path: "Tests/Support/transport-bench",
            swiftSettings: settings),
        .executableTarget(
            name: "region-download",
            dependencies: ["TileCache", "TileCacheNIO"],
            path: "Tests/Support/region-download",
            swiftSettings: settings),
        .executableTarget(
            name: "tilegc",
            dependencies: [
                "ContentCoding",
                "TileStore",
                "TileCache",
                "TileCacheNIO",
                "ObjectStorage",
                "SharedTier",
                "TileSets",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                "TileArchive",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            swiftSettings: testSettings),
        .target(
            name: "TileProxyServer",
            dependencies: [
                "ContentCoding",
                "TileStore",
                "HTTPCaching",
                "CacheEngine",
                "HTTPListener",
                "HTTPWire",
                "ObjectStorage",
                "OriginClient",
                "SharedTier",
                "TileArchive",
                "TileCache",
                "TileCacheArchive",
                "TileImaging",
                "TileSets",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "Yams", package: "Yams"),
            ],
            swiftSettings: settings),
        .systemLibrary(name: "CMalloc"),
        .executableTarget(
            name: "tileproxy",
            dependencies: [
                .target(name: "CMalloc", condition: .when(platforms: [.linux])),
                "HTTPListener",
                "TileProxyServer",
                "TileStore",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
            ],
            swiftSettings: settings),
        .testTarget(
            name: "TileGeometryTests",
            dependencies: ["TileGeometry", "TileStoreTesting"],
            swiftSettings: testSettings),
        .testTarget(
            name: "TileStoreTests",
            dependencies: ["TileStore", "TileStoreTesting"],
            swiftSettings: testSettings),
        .testTarget(
            name: "HTTPCachingTests",
            dependencies: [
                "HTTPCaching",
                "TileStoreTesting",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            swiftSettings: testSettings),
        .testTarget(
            name: "CacheEngineTests",
            dependencies: [
                "CacheEngine",
                "TileStore",
                "HTTPCaching",
                "TileStoreTesting",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            swiftSettings: testSettings),
        .testTarget(
            name: "TileCacheTests",
            dependencies: [
                "TileCache",
                "CacheEngine",
                "TileStore",
                "HTTPCaching",
                "ContentCoding",
                "TileStoreTesting",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            swiftSettings: testSettings),
        .testTarget(
            name: "TileCacheMapKitTests",
            dependencies: [
                "TileArchive", "TileArchiveTesting", "TileCacheMapKit", "TileCache", "TileStore", "TileStoreTesting",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            swiftSettings: testSettings),
        .testTarget(
            name: "TileCacheNIOTests",
            dependencies: [
                "ContentCoding", "TileArchiveTesting", "TileCache", "TileCacheArchive", "TileCacheNIO",
                "TileCacheTesting",
                "TileStore",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ],
            swiftSettings: testSettings),
        .testTarget(
            name: "TileImagingTests",
            dependencies: ["TileImaging", "CTileImaging", "TileArchive", "TileStore", "TileStoreTesting"],
            swiftSettings: testSettings),
        .testTarget(
            name: "TileArchiveTests",
            dependencies: [
                "TileArchive", "TileArchiveTesting", "TileCache", "TileCacheArchive", "TileCacheTesting", "TileSets",
                "ContentCoding", "TileStore", "TileStoreTesting",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "GRDB", package: "GRDB.swift"),
            ],
            swiftSettings: testSettings),
        .testTarget(
            name: "tilegcTests",
            dependencies: [
                "CTileImaging", "TileArchive", "TileStore", "TileStoreTesting", "TileCacheTesting", "tilegc",
                "region-download",
                .product(name: "HTTPTypes", package: "swift-http-types"),
            ],
            exclude: ["Golden"],
            swiftSettings: testSettings),
        .testTarget(
            name: "HTTPListenerTests",
            dependencies: [
                "HTTPListener",
                "HTTPCaching",
                "HTTPWire",
                "TileCacheTesting",
                "TileStoreTesting",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOHPACK", package: "swift-nio-http2"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
            ],
            swiftSettings: testSettings),
        .testTarget(
            name: "OriginClientTests",
            dependencies: [
                "OriginClient",
                "HTTPWire",
                "TileCacheTesting",
                "TileStoreTesting",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: testSettings),
        .testTarget(
            name: "SharedTierTests",
            dependencies: [
                "SharedTier", "CacheEngine", "ObjectStorage", "TileCacheTesting", "TileStore", "TileStoreTesting",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: testSettings),
        .testTarget(
            name: "TileSetsTests",
            dependencies: ["TileSets", "ContentCoding", "TileStore", "TileStoreTesting"],
            swiftSettings: testSettings),
        .testTarget(
            name: "ObjectStorageTests",
            dependencies: [
                "ObjectStorage",
                "OriginClient",
                "HTTPCaching",
                "TileCacheTesting",
                "TileStore",
                "TileStoreTesting",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: testSettings),
        .testTarget(
            name: "TileProxyServerTests",
            dependencies: [
                "TileProxyServer",
                "CacheEngine",
                "HTTPListener",
                "HTTPWire",
                "ObjectStorage",
                "OriginClient",
                "SharedTier",
                "ContentCoding",
                "TileArchive",
                "TileArchiveTesting",
                "TileCache",
                "TileCacheArchive",
                "TileCacheNIO",
                "TileCacheTesting",
                "TileImaging",
                "TileSets",
                "TileStore",
                "TileStoreTesting",
                "HTTPCaching",
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            swiftSettings: testSettings),
    ]
}

// What takes bytes from outside: with libFuzzer in a program, or replayed by tests.
let fuzzed: [Target.Dependency] = [
    "ContentCoding", "HTTPCaching", "HTTPListener", "HTTPWire", "OriginClient", "TileArchive", "TileCache",
    "TileImaging",
    "TileProxyServer", "TileSets", "TileStore", "TileStoreTesting",
    .product(name: "HTTPTypes", package: "swift-http-types"),
    .product(name: "NIOCore", package: "swift-nio"),
]
if fuzzes {
    package.targets.append(
        .executableTarget(
            name: "fuzz",
            dependencies: fuzzed,
            path: "Tests/FuzzTests",
            exclude: ["ReplayTests.swift"],
            swiftSettings: settings,
            // gold, the usual linker, does not survive it.
            linkerSettings: [.unsafeFlags(["-sanitize=fuzzer,address", "-use-ld=lld"])]))
} else if tools {
    package.targets.append(
        .testTarget(
            name: "FuzzTests",
            dependencies: fuzzed,
            exclude: ["Driver.swift"],
            swiftSettings: testSettings))
}

if let data = Context.environment["TILECACHE_ICU_DATA"] {
    // Only for `make package`: an object that takes the place of ICU's data in Foundation. Among the linker's flags of the command line it
    // would come after Foundation, and be one definition too many.
    for target in package.targets where ["tilegc", "tileproxy"].contains(target.name) {
        target.linkerSettings = [.unsafeFlags([data])]
    }
}

if Context.environment["TILECACHE_DOCS"] != nil {
    // Only for `make docs`: nobody who depends on the package needs it.
    package.dependencies.append(.package(url: "https://github.com/swiftlang/swift-docc-plugin", from: "1.4.0"))
}

#if os(Linux)
if Context.environment["TILECACHE_STRICT"] != nil {
    // Only for `make test`: modules with the names and signatures of MapKit and SwiftUI, so that the adapter is compiled and
    // its tests run where there are none.
    for target in package.targets where target.name.hasPrefix("TileCacheMapKit") {
        target.dependencies += ["MapKit", "SwiftUI"]
    }
    package.targets += [
        .target(name: "MapKit", path: "Tests/MapKitStub", swiftSettings: settings),
        .target(name: "SwiftUI", path: "Tests/SwiftUIStub", swiftSettings: settings),
        .target(
            name: "MapKitDemo",
            dependencies: ["TileCacheMapKit", "TileCache", "MapKit"],
            path: "Examples/MapKitDemo",
            exclude: ["README.md"],
            packageAccess: false,
            swiftSettings: settings),
    ]
}
#endif
