// swift-tools-version: 6.2
import Foundation
import PackageDescription

// LMDB is measured where it is installed. `make bench` asks pkg-config; without it, the usual places are looked at.
// SwiftPM remembers how it has read this file: after LMDB was installed, BENCH_LMDB=1 tells it to look again.
let hasLMDB =
    Context.environment["BENCH_LMDB"].map { $0 == "1" }
    ?? ["/usr/include", "/usr/local/include", "/opt/homebrew/include"].contains {
        FileManager.default.fileExists(atPath: $0 + "/lmdb.h")
    }

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("MemberImportVisibility"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]

// A package of its own: GRDB and LMDB, the peers that are measured, must not become dependencies of the library.
let package = Package(
    name: "Benchmarks",
    platforms: [.macOS(.v15)],
    dependencies: [
        .package(name: "swift-tile-cache", path: "..", traits: ["MBTiles"]),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
    ],
    targets: [
        .executableTarget(
            name: "tile-bench",
            dependencies: [
                .product(name: "TileCache", package: "swift-tile-cache"),
                .product(name: "TileStore", package: "swift-tile-cache"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "GRDB", package: "GRDB.swift"),
            ] + (hasLMDB ? [.target(name: "CLMDB")] : []),
            swiftSettings: settings),
        .executableTarget(
            name: "bench-child",
            dependencies: [.product(name: "TileStore", package: "swift-tile-cache")],
            swiftSettings: settings),
        .executableTarget(
            name: "imaging-bench",
            dependencies: [
                .product(name: "TileImaging", package: "swift-tile-cache"),
                .product(name: "TileStore", package: "swift-tile-cache"),
            ]),
        .executableTarget(
            name: "archive-bench",
            dependencies: [
                .product(name: "TileStore", package: "swift-tile-cache"),
                .product(name: "TileArchive", package: "swift-tile-cache"),
                .product(name: "TileCache", package: "swift-tile-cache"),
                .product(name: "TileCacheArchive", package: "swift-tile-cache"),
                .product(name: "GRDB", package: "GRDB.swift"),
            ]),
    ]
        + (hasLMDB
            ? [.systemLibrary(name: "CLMDB", pkgConfig: "lmdb", providers: [.apt(["liblmdb-dev"]), .brew(["lmdb"])])]
            : []),
    swiftLanguageModes: [.v6]
)
