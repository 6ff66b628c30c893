// swift-tools-version: 6.1
import PackageDescription

// A package of its own: GRDB, the peer that is measured, must not become a dependency of the library.
let package = Package(
    name: "Benchmarks",
    platforms: [.macOS(.v15)],
    dependencies: [
        .package(name: "swift-tile-cache", path: ".."),
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
            ],
            swiftSettings: [
                .enableUpcomingFeature("ExistentialAny"),
                .enableUpcomingFeature("MemberImportVisibility"),
                .enableUpcomingFeature("InternalImportsByDefault"),
            ]),
        .executableTarget(
            name: "bench-child",
            dependencies: [.product(name: "TileStore", package: "swift-tile-cache")]),
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
    ],
    swiftLanguageModes: [.v6]
)
