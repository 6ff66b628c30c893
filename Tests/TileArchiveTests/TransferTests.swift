import ContentCoding
import Foundation
import GRDB
import Testing
import TileArchive
import TileStore
import TileStoreTesting

/// From archives into stores and back.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct TransferTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private func store(_ name: String) throws -> TileStore { try TileStore(at: scratch(name)) }

    private func check(_ store: TileStore, blobs: Int) throws {
        let report = try store.verify()
        #expect(report.ok && report.orphans.isEmpty && report.blobsChecked == blobs)
    }

    /// By way of folder, cache, PMTiles, cache, MBTiles, cache and folder.
    @Test(arguments: Seeds.list(6))
    func tilesComeBackByteForByte(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let pyramid = Pyramid(seed: seed, zooms: random.below(3)...(3 + random.below(3)), share: 1 + random.below(4))
        try pyramid.write(to: scratch, "in")
        let stores = try ["a", "b", "c"].map { try store($0) }
        var sources = ["in", "1.pmtiles", "2.mbtiles"]
        let targets = ["1.pmtiles", "2.mbtiles", "out"]
        for (i, store) in stores.enumerated() {
            let taken = try store.take(scratch(sources[i]))
            #expect(taken.tiles == pyramid.tiles.count && taken.newBlobs == pyramid.unique && taken.skipped == 0)
            #expect(taken.bytes == pyramid.bytes)
            try check(store, blobs: pyramid.unique)
            let given = try store.give(scratch(targets[i]))
            #expect(given.tiles == pyramid.tiles.count && given.bytes == pyramid.bytes && given.skipped == 0)
            let reader = try ArchiveFormat(path: targets[i]).open(scratch(targets[i]))
            #expect(try reader.everything().tiles.mapValues(\.data) == pyramid.tiles)
            for (place, data) in pyramid.tiles.shuffled(using: &random).prefix(50) {
                #expect(try reader.tile(z: place.z, x: place.x, y: place.y)?.data == data)
            }
        }
        // The same tiles make the same file.
        sources = []
        try stores[2].give(scratch("3.pmtiles"))
        let (first, third) = (scratch("1.pmtiles"), scratch("3.pmtiles"))
        #expect(FileManager.default.contentsEqual(atPath: first, andPath: third))
        for name in try FileManager.default.contentsOfDirectory(atPath: scratch.path) { #expect(!name.hasPrefix(".")) }
    }

    @Test func packagesHaveContentsOnce() throws {
        let store = try store("a")
        for x in 0..<8 {
            for y in 0..<8 {
                try put(store, 3, x, y, y < 6 ? Pyramid.ocean : Pyramid.magic + Data([UInt8(x), UInt8(y)]))
            }
        }
        try store.give(scratch("o.pmtiles"))
        let header = try PMTilesHeader(Data(contentsOf: URL(fileURLWithPath: scratch("o.pmtiles"))), path: "o")
        #expect(header.isClustered && header.addressedTiles == 64 && header.contents == 17)
        #expect(header.entries < 40)
        #expect(header.data.length == UInt64(Pyramid.ocean.count + 16 * 10))
        #expect(header.tileType == 2 && header.tileCompression == 1 && header.minZoom == 3 && header.maxZoom == 3)

        try store.give(scratch("o.mbtiles"))
        let queue = try DatabaseQueue(path: scratch("o.mbtiles"))
        try queue.read { db in
            #expect(try Int.fetchOne(db, sql: "SELECT count(*) FROM images") == 17)
            #expect(try Int.fetchOne(db, sql: "SELECT count(*) FROM map") == 64)
            #expect(try Int.fetchOne(db, sql: "SELECT count(*) FROM tiles") == 64)
            #expect(try String.fetchOne(db, sql: "PRAGMA integrity_check") == "ok")
            let plan = try Row.fetchAll(
                db,
                sql:
                    "EXPLAIN QUERY PLAN SELECT tile_data FROM tiles WHERE zoom_level=1 AND tile_column=1 AND tile_row=1"
            )
            #expect(!plan.contains { ($0["detail"] as String).contains("SCAN") })
            let rows = try Row.fetchAll(db, sql: "SELECT name, value FROM metadata")
            let metadata = Dictionary(rows.map { ($0[0] as String, $0[1] as String) }) { $1 }
            #expect(metadata["name"] == "s" && metadata["format"] == "png")
            #expect(metadata["minzoom"] == "3" && metadata["maxzoom"] == "3")
            #expect(metadata["bounds"] == "-180.0,-85.0511288,180.0,85.0511288")
        }
        try queue.close()
    }

    private func put(
        _ store: TileStore, _ z: Int, _ x: Int, _ y: Int, scale: Int = 1, format: String? = nil, _ data: Data?,
        type: String? = "image/png", encoding: String? = nil, at time: Int64 = 1_600_000_000
    ) throws {
        let fields = ResponseFields(status: data == nil ? 404 : 200, mediaType: type, contentEncoding: encoding)
        try store.put(
            data, for: TileKey(source: "s", z: z, x: x, y: y, scale: scale, format: format),
            metadata: TileMetadata(
                response: fields, storedAt: Timestamp(seconds: time), expires: Timestamp(seconds: 4_000_000_000)))
    }

    /// Many different tiles: leaves, and the order of sections for small and large files.
    @Test(arguments: [UInt64(1) << 40, 0])
    func leavesAreMadeWhereTheRootWouldNotFit(movingAtMost: UInt64) throws {
        let writer = try PMTilesWriter(scratch("l.pmtiles"), movingAtMost: movingAtMost)
        var random = SplitMix64(seed: 3)
        var expected: [UInt64: Data] = [:]
        for i in 0..<20_000 {
            let data = withUnsafeBytes(of: random.next()) { Data($0.prefix(1 + i % 8)) }
            let tile = TileID.first(ofZoom: 9) + UInt64(5 * i + i % 3)
            try writer.place(tile, content: try writer.add(data), length: data.count)
            expected[tile] = data
        }
        try writer.finish(ArchiveSummary(metadata: ArchiveMetadata()))
        let bytes = try Data(contentsOf: URL(fileURLWithPath: scratch("l.pmtiles")))
        let header = try PMTilesHeader(bytes, path: "l")
        #expect(header.leaves.length > 0 && header.root.offset + header.root.length <= 16_384)
        #expect((header.data.offset + header.data.length == UInt64(bytes.count)) == (movingAtMost > 0))
        let reader = try ArchiveFormat.pmtiles.open(scratch("l.pmtiles"))
        #expect(try reader.everything().tiles.count == expected.count)
        for (number, data) in expected {
            let tile = try #require(TileID.tile(number))
            #expect(try reader.tile(z: tile.z, x: tile.x, y: tile.y)?.data == data)
        }
    }

    @Test func vectorTilesKeepTheirCompression() throws {
        let vector = "application/vnd.mapbox-vector-tile"
        let (plain, packed) = (Data([0x1A, 2, 3]), try Gzip.encode(Data([0x1A, 9, 9])))
        try scratch.write(packed, to: "in/1/0/0.pbf")
        let store = try store("a")
        try store.take(scratch("in"))
        try store.give(scratch("a.pmtiles"))
        var reader = try ArchiveFormat.pmtiles.open(scratch("a.pmtiles"))
        let tile = try #require(try reader.tile(z: 1, x: 0, y: 0))
        #expect(tile.data == packed && tile.contentEncoding == "gzip" && tile.mediaType == vector)
        let entry = try store.entry(for: TileKey("s/1/0/0"))
        #expect(entry?.metadata.response.contentEncoding == "gzip" && entry?.metadata.response.mediaType == vector)

        // PMTiles says once for all tiles whether they are compressed: then all are. MBTiles takes them as they come.
        try put(store, 1, 1, 0, plain, type: vector)
        try store.give(scratch("b.pmtiles"))
        reader = try ArchiveFormat.pmtiles.open(scratch("b.pmtiles"))
        let compressed = try #require(try reader.tile(z: 1, x: 1, y: 0)?.data)
        #expect(Gzip.decode(compressed, limit: 100) == plain)
        try store.give(scratch("b.mbtiles"))
        #expect(try ArchiveFormat.mbtiles.open(scratch("b.mbtiles")).tile(z: 1, x: 1, y: 0)?.data == plain)
    }

    @Test func picturesArePackedPlain() throws {
        let store = try store("a")
        try put(store, 1, 0, 0, try Gzip.encode(Pyramid.ocean), encoding: "gzip")
        try put(store, 1, 0, 1, try Gzip.encode(Pyramid.ocean).dropLast(2), encoding: "gzip")
        try put(store, 1, 1, 1, Data([1, 2]), encoding: "br")
        let notes = Notes()
        let report = try store.give(scratch("o.mbtiles"), notes)
        #expect(report.tiles == 1 && report.failed == 1 && report.skipped == 1)
        #expect(try ArchiveFormat.mbtiles.open(scratch("o.mbtiles")).tile(z: 1, x: 0, y: 0)?.data == Pyramid.ocean)
    }

    @Test func oneTileOfEachPlaceIsPacked() throws {
        let store = try store("a")
        try put(store, 1, 0, 0, scale: 2, Data([2]))
        try put(store, 1, 0, 0, format: "png", Data([3]))
        try put(store, 1, 0, 0, Data([1]))
        try put(store, 1, 1, 0, scale: 2, Data([4]))
        try put(store, 1, 1, 1, nil)
        try put(store, 0, 0, 0, Data())
        let report = try store.give(scratch("o.pmtiles"))
        #expect(report.tiles == 2 && report.skipped == 4)
        let reader = try ArchiveFormat.pmtiles.open(scratch("o.pmtiles"))
        #expect(
            try reader.everything().tiles.mapValues(\.data) == [Place(1, 0, 0): Data([1]), Place(1, 1, 0): Data([4])])
    }

    @Test func regionsComeAlong() throws {
        let store = try store("a")
        let pyramid = Pyramid(seed: 4, zooms: 0...3)
        try pyramid.write(to: scratch, "in")
        try store.take(scratch("in"))
        let source = try SourceName("s")
        let box = try GeoBox(west: 1, south: 2, east: 30, north: 40)
        let region = try PinnedRegion(
            name: "r", source: source, spans: try box.spans(zoom: 2) + box.spans(zoom: 3), box: box)
        try store.pin(region)
        try store.pin(
            try PinnedRegion(name: "other", source: try SourceName("t"), spans: try box.spans(zoom: 1)))
        for name in ["r.mbtiles", "r.pmtiles"] {
            var export = ArchiveExport(store: store, source: source)
            export.region = region
            let report = try export.run(to: scratch(name), format: ArchiveFormat(path: name), observer: Notes())
            #expect(report.tiles == region.tileCount)
            let reader = try ArchiveFormat(path: name).open(scratch(name))
            let carried = try reader.metadata.regions.map { try $0.pinned(for: source) }
            #expect(carried == [region])
            let found = try reader.everything().tiles
            #expect(found.keys.allSatisfy { region.contains(z: $0.z, x: $0.x, y: $0.y) })
            #expect(found.count == region.tileCount)
        }
    }

    @Test func aStoppedPackageLeavesNothing() throws {
        let store = try store("a")
        let pyramid = Pyramid(seed: 5, zooms: 0...4)
        try pyramid.write(to: scratch, "in")
        try store.take(scratch("in"))
        for name in ["x.mbtiles", "x.pmtiles"] {
            try scratch.write(Data("old".utf8), to: name)
            for stop in [1, pyramid.tiles.count - 1, pyramid.tiles.count + 5] {
                let notes = Notes()
                notes.stopAfter = stop
                #expect(try store.give(scratch(name), notes).wasStopped)
                #expect(try Data(contentsOf: URL(fileURLWithPath: scratch(name))) == Data("old".utf8))
            }
        }
        let names = try FileManager.default.contentsOfDirectory(atPath: scratch.path)
        #expect(Set(names) == ["a", "in", "x.mbtiles", "x.pmtiles"])
    }

    @Test func aStoppedImportLeavesASoundStoreAndIsCompleted() throws {
        let pyramid = Pyramid(seed: 6, zooms: 0...5)
        try pyramid.write(to: scratch, "in")
        try store("a").take(scratch("in"))
        try store("a").give(scratch("a.pmtiles"))
        let other = try store("b")
        let notes = Notes()
        notes.stopAfter = 700
        let report = try other.take(scratch("a.pmtiles"), notes)
        #expect(report.wasStopped && report.tiles == 700)
        #expect(try other.verify().ok)
        #expect(try other.statistics().entries == 700)
        #expect(try other.take(scratch("a.pmtiles")).tiles == pyramid.tiles.count)
        try check(other, blobs: pyramid.unique)
    }

    @Test func anArchiveThatBreaksInTheMiddleLeavesASoundStore() throws {
        let raw = RawPMTiles(
            (0..<600).map { PMTilesEntry(tile: $0, offset: $0, length: 5, run: 1) }
                + [PMTilesEntry(tile: 700, offset: 0, length: 3, run: 0)], data: Data((0..<700).map { UInt8($0 & 255) })
        )
        var broken = raw
        broken.leaves = Data([1, 2, 3])
        try scratch.write(broken.bytes, to: "b.pmtiles")
        let store = try store("a")
        #expect(message { try store.take(scratch("b.pmtiles")) }.hasSuffix("[damaged]"))
        #expect(try store.verify().ok)
        #expect(try store.statistics().entries == 600)
    }

    @Test func anImportReplacesUnlessWhatIsThereIsNewer() throws {
        try scratch.write(
            RawPMTiles([PMTilesEntry(tile: 0, offset: 0, length: 3, run: 1)], data: Data("new".utf8)).bytes,
            to: "n.pmtiles")
        let written = try #require(try ArchiveFormat.pmtiles.open(scratch("n.pmtiles")).modified)
        for (storedAt, keeps, expected) in [
            (written + 10, true, "old"), (written - 10, true, "new"), (written + 10, false, "new"),
        ] {
            let store = try TileStore(at: scratch("\(storedAt)\(keeps)"))
            try put(store, 0, 0, 0, Data("old".utf8), at: storedAt)
            var transfer = ArchiveImport(
                store: store, source: try SourceName("s"), now: Timestamp(seconds: written + 20))
            transfer.keepsNewer = keeps
            let report = try transfer.run(ArchiveFormat.pmtiles.open(scratch("n.pmtiles")), observer: Notes())
            #expect(report.skipped == (expected == "old" ? 1 : 0) && report.keptNewer == report.skipped)
            #expect(try store.read(TileKey("s/0/0/0"))?.data == Data(expected.utf8))
        }
    }

    @Test(arguments: [-1_400_000_000, 4_922_000_000, Int64.min, Int64.max])
    func anImportWithAWrongClockBlamedAnotherProcess(_ seconds: Int64) throws {
        try scratch.write(
            RawPMTiles([PMTilesEntry(tile: 0, offset: 0, length: 3, run: 1)], data: Data("new".utf8)).bytes,
            to: "n.pmtiles")
        let transfer = ArchiveImport(
            store: try TileStore(at: scratch("cache")), source: try SourceName("s"), now: Timestamp(seconds: seconds))
        let report = try transfer.run(ArchiveFormat.pmtiles.open(scratch("n.pmtiles")), observer: Notes())
        #expect(report.tiles == 1)
        #expect(try transfer.countOfKept() == 1)
    }

    @Test func whatIsKnownOfASourceIsMerged() throws {
        _ = try store("a")
        let description = SourceDescription(cache: scratch("a"), source: try SourceName("s"))
        #expect(try description.read() == ArchiveMetadata())
        var first = ArchiveMetadata()
        first.name = "one"
        first.attribution = "© A"
        first.others = [JSON.Member("vector_layers", .array([.number("1")]))]
        first.bounds = try GeoBox(west: -1, south: -2, east: 3, north: 4)
        try description.merge(first)
        #expect(try description.read() == first)
        var second = ArchiveMetadata()
        second.attribution = "© B"
        try description.merge(second)
        let merged = try description.read()
        #expect(merged.name == "one" && merged.attribution == "© A, © B" && merged.others == first.others)
        #expect(try TileStore(at: scratch("a")).verify().ok)
    }

    @Test func templatesNameFolders() throws {
        try scratch.write(Pyramid.ocean, to: "in/2/1/0.png")
        try scratch.write(Pyramid.magic, to: "in/2/1/0@2x.png")
        for (template, y, data) in [
            ("in", 0, Pyramid.ocean), ("in/{z}/{x}/{y}.png", 0, Pyramid.ocean),
            ("in/{z}/{x}/{-y}.png", 3, Pyramid.ocean),
            ("in/{z}/{x}/{y}@2x.png", 0, Pyramid.magic),
        ] {
            let reader = try ArchiveFormat(path: template).open(scratch(template))
            #expect(try reader.tile(z: 2, x: 1, y: y)?.data == data)
            #expect(try reader.tile(z: 2, x: 1, y: 1) == nil)
            #expect(try reader.tile(z: 2, x: 2, y: 0) == nil)
        }
        for template in ["in/{z}/{y}.png", "in/{z}/{x}/{y}/../../x.png"] {
            #expect(message { _ = try ArchiveFormat.folder.open(scratch(template)) }.hasSuffix("[invalidValue]"))
        }
        #expect(message { _ = try ArchiveFormat.folder.open(scratch("absent")) }.hasSuffix("[notFound]"))
    }

    @Test func tagsNameContents() {
        let tile = ArchivedTile(data: Data("abc".utf8))
        #expect(tile.etag == "\"ba7816bf8f01cfea414140de5dae2223\"")
    }
}
