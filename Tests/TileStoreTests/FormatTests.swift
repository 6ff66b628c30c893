import Foundation
import Testing
import TileStore
import TileStoreTesting

/// The second reader, written in Python from Docs/on-disk-format.md alone, reads what the store writes.
///
/// Scripts/check-format.sh does the same with caches that `tilegc` makes; those have no uses, regions and rotations.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct FormatTests {
    private static let reader = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("../../Scripts/read-cache.py").standardizedFileURL.path

    private static let python: String? = (ProcessInfo.processInfo.environment["PATH"] ?? "/usr/bin")
        .split(separator: ":").map { "\($0)/python3" }
        .first { FileManager.default.isExecutableFile(atPath: $0) }

    @Test(
        "A reader written from the format's description reads every kind of record",
        .enabled("there is no python3 here to run Scripts/read-cache.py", { python != nil }),
        arguments: [false, true])
    func readerAgrees(durable: Bool) throws {
        let folder = TemporaryFolder()
        let clock = ManualClock()
        var configuration = StoreConfiguration()
        configuration.durability = durable ? .durable : .relaxed
        func open() throws -> TileStore {
            try TileStore(
                environment: clock.environment(DiskFileSystem(location: folder.path)), configuration: configuration)
        }
        let block = DiskFileSystem(location: folder.path).blockSize
        var store = try open()
        try Self.fill(store, clock, block)
        // A compaction that is given up leaves two journals, the first of which ends with a rotate record.
        let begun = try store.beginCompaction()
        try #require(begun).abandon()
        try Self.fill(store, clock, block)
        _ = try store.read(Universe.keys[1])
        try store.close()

        let journals = try Self.manifest(folder.path, "journal-")
        for member in [
            "key", "set", "gone", "drop", "uses", "expire", "region", "regionGone", "limits", "rotate",
        ] + (durable ? [] : ["boot"]) {
            #expect(journals.contains("\n{\"\(member)\":"), "no record \(member) in the journals")
        }
        // What a durable store writes needs no mark.
        #expect(journals.contains("{\"boot\":") == !durable)
        store = try open()
        try Self.compare(store, folder.path, "in the journals")

        _ = try store.compact()
        try Self.compare(store, folder.path, "in the checkpoint")
        let checkpoint = try Self.manifest(folder.path, "checkpoint-")
        for member in ["key", "set", "region", "limits", "blob"] + (durable ? [] : ["boot"]) {
            #expect(checkpoint.contains("\n{\"\(member)\":"), "no record \(member) in the checkpoint")
        }
        try Self.fill(store, clock, block)
        try store.flush()
        try Self.compare(store, folder.path, "in both")
    }

    /// Makes every kind of record but those of a rotation.
    private static func fill(_ store: TileStore, _ clock: ManualClock, _ block: Int) throws {
        for (number, key) in Universe.keys.enumerated() {
            let payload = number % 7 == 6 ? nil : Universe.payloads[number % 9]
            try store.put(payload, for: key, metadata: Universe.metadata(UInt8(number), now: clock.now))
        }
        clock.advance(seconds: 20)
        for number in [3, 9, 2, 30] { _ = try store.read(Universe.keys[number]) }
        try store.flush()
        for (name, area) in [(0, 11), (1, 18), (2, 6)] as [(UInt8, UInt8)] {
            try store.pin(try #require(Universe.region(name: name, area: area)))
        }
        #expect(try store.unpin(#require(Universe.region(name: 2, area: 0)).name))
        clock.advance(seconds: 20)
        _ = try store.expire(Universe.selection(1))
        _ = try store.remove([Universe.keys[30]])
        // A blob that was used last through an entry that is gone.
        try store.put(Universe.payloads[14], for: Universe.keys[11], metadata: Universe.metadata(3, now: clock.now))
        try store.put(Universe.payloads[14], for: Universe.keys[10], metadata: Universe.metadata(3, now: clock.now))
        _ = try store.read(Universe.keys[11])
        try store.flush()
        _ = try store.remove([Universe.keys[11]], includingPinned: true)
        let figures = try store.statistics()
        _ = try store.evict(toBytes: figures.allocatedBytes - figures.pinnedBytes - block)
        let limits = try store.limits()
        try store.setLimits(StoreLimits(capacity: (limits.capacity ?? 1 << 20) + 1000, entryLimit: 5000))
    }

    private static func manifest(_ folder: String, _ prefix: String) throws -> String {
        let names = try FileManager.default.contentsOfDirectory(atPath: folder + "/manifest").sorted()
        return try names.filter { $0.hasPrefix(prefix) }
            .map { try String(contentsOfFile: "\(folder)/manifest/\($0)", encoding: .utf8) }.joined()
    }

    // MARK: What is compared

    private struct Row: Codable, Equatable {
        var key: String
        var blob: String?
        var size: Int
        var status: Int
        var etag: String?
        var expires: Int64
        var lastUsed: Int64
        var use: UInt64
    }

    private struct Told: Codable, Equatable {
        struct Region: Codable, Equatable {
            var region: String
            struct Tiles: Codable, Equatable {
                var source: String
                var spans: [[Int]]
            }
            var source: String
            var spans: [[Int]]
            var noTiles: Bool?
            var more: [Tiles]?
            var resources: [String]?
        }
        struct Limits: Codable, Equatable {
            var bytes: Int?
            var entries: Int
        }
        var entries: [Row]
        var regions: [Region]
        var limits: Limits
    }

    private static func compare(_ store: TileStore, _ folder: String, _ place: Comment) throws {
        let snapshot = try store.snapshot()
        let told = Told(
            entries: snapshot.entries.map {
                Row(
                    key: $0.key.description, blob: $0.blob?.description, size: $0.size,
                    status: $0.metadata.response.status, etag: $0.metadata.etag,
                    expires: $0.metadata.expires.seconds, lastUsed: $0.lastUsed.seconds, use: $0.recency)
            }.sorted { $0.key.utf8.lexicographicallyPrecedes($1.key.utf8) },
            regions: snapshot.regions.map {
                Told.Region(
                    region: $0.name, source: $0.source.description,
                    spans: $0.spans.isEmpty ? [[0, 0, 0, 0, 0]] : $0.spans.map(numbers),
                    noTiles: $0.spans.isEmpty ? true : nil,
                    more: $0.others.isEmpty
                        ? nil
                        : $0.others.map {
                            Told.Region.Tiles(source: $0.source.description, spans: $0.spans.map(numbers))
                        }, resources: $0.resources.isEmpty ? nil : $0.resources.map(\.description))
            },
            limits: Told.Limits(bytes: snapshot.limits.capacity, entries: snapshot.limits.entryLimit))
        let read = try JSONDecoder().decode(Told.self, from: run([reader, "--all", folder]))
        #expect(read.entries.count > 20, place)
        #expect(read.regions.count == 2, place)
        for (mine, theirs) in zip(told.entries, read.entries) { #expect(mine == theirs, place) }
        #expect(read == told, place)
    }

    private static func numbers(_ span: TileSpan) -> [Int] {
        [span.zoom, span.columns.lowerBound, span.columns.upperBound, span.rows.lowerBound, span.rows.upperBound]
    }

    private static func run(_ arguments: [String]) throws -> Data {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: try #require(python))
        process.arguments = arguments
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let data = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        #expect(process.terminationStatus == 0, "read-cache.py says why above")
        return data
    }
}
