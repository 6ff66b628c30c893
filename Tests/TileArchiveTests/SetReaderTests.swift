import ContentCoding
import Foundation
import Testing
import TileArchive
import TileArchiveTesting
import TileSets
import TileStore
import TileStoreTesting

/// Published sets, read like archives.
@Suite("Sets that are read like archives", .timeLimit(.minutes(60)), .ownCores)
struct SetReaderTests {
    private let scratch: Scratch
    init() throws { scratch = try Scratch() }

    private func random(_ seed: UInt64, count: Int, zooms: ClosedRange<Int>) throws -> [TileAddress: Data] {
        var random = SplitMix64(seed: seed)
        var tiles: [TileAddress: Data] = [:]
        for _ in 0..<count {
            let z = zooms.lowerBound + random.below(zooms.count)
            let tile = try TileAddress(
                z: z, x: random.below(1 << z), y: random.below(1 << z), scale: random.oneIn(8) ? 2 : 1,
                format: random.oneIn(4) ? ["png", "webp"][random.below(2)] : nil)
            tiles[tile] = Data("tile \(random.below(40))".utf8)
        }
        return tiles
    }

    /// What a look-up has to find: scale 1, the one without a format before the others.
    private func expected(_ tiles: [TileAddress: Data], z: Int, x: Int, y: Int) -> Data? {
        tiles.filter { $0.key.z == z && $0.key.x == x && $0.key.y == y && $0.key.scale == 1 }
            .min { ($0.key.format ?? "") < ($1.key.format ?? "") }?.value
    }

    private func check(_ reader: SetReader, _ tiles: [TileAddress: Data], seed: UInt64, _ note: String) throws {
        var seen: [TileAddress: Data] = [:]
        try reader.forEachTile { step in
            guard case .tile(let z, let x, let y, let scale, let format, let tile) = step else {
                Issue.record("\(note): \(step)")
                return true
            }
            seen[try TileAddress(z: z, x: x, y: y, scale: scale, format: format)] = tile.data
            return true
        }
        #expect(seen == tiles, "\(note)")
        #expect(reader.tileCount == tiles.count)
        var places: [[Int]: [TileAddress: Data]] = [:]
        for (tile, data) in tiles { places[[tile.z, tile.x, tile.y], default: [:]][tile] = data }
        var random = SplitMix64(seed: seed)
        var wanted = places.keys.shuffled(using: &random).prefix(300).map { $0 }
        for _ in 0..<200 {
            let z = random.below(12)
            wanted.append([z, random.below(1 << z), random.below(1 << z)])
        }
        for place in wanted {
            let (z, x, y) = (place[0], place[1], place[2])
            let right = expected(places[place] ?? [:], z: z, x: x, y: y)
            // First from what is in memory, then by waiting, then from memory again.
            for _ in 0..<2 {
                switch try reader.tileNow(z: z, x: x, y: y) {
                case .tile(let tile): #expect(tile.data == right, "\(note): \(place)")
                case .absent: #expect(right == nil, "\(note): \(place)")
                case .mustWait: break
                }
                #expect(try reader.tile(z: z, x: x, y: y)?.data == right, "\(note): \(place)")
            }
        }
    }

    @Test(arguments: Seeds.list(4))
    func tilesAreThoseThatWerePublished(seed: UInt64) throws {
        let store = try TileStore(at: scratch("cache"))
        let first = try random(seed, count: 6000, zooms: 0...9)
        for (tile, data) in first { try store.put(data, tile) }
        try store.publish(scratch("set"))
        let old = try SetReader(scratch("set"))
        try check(old, first, seed: seed, "the first version")
        var second = first
        for tile in first.keys.sorted(by: { "\($0)" < "\($1)" }).prefix(500) {
            second[tile] = nil
            _ = try store.remove([TileKey(source: SourceName("s"), tile: tile)])
        }
        for (tile, data) in try random(seed &+ 100, count: 500, zooms: 3...10) {
            second[tile] = data
            try store.put(data, tile)
        }
        try store.publish(scratch("set"))
        try check(old, first, seed: seed, "the first version, while the second is there")
        try check(SetReader(scratch("set/set.json")), second, seed: seed, "the second version")
        try check(
            SetReader(scratch("set"), version: old.version), first, seed: seed, "the first one, as a kept version")
        #expect(
            try ArchiveFormat(path: scratch("set/set.json")).open(scratch("set/set.json")).tileCount == second.count)
    }

    /// More variants of one place than a chunk holds.
    @Test func placesWhoseVariantsAreCutInTwoAreFound() throws {
        let store = try TileStore(at: scratch("cache"))
        for number in 0..<4200 {
            let tile = try TileAddress(z: 1, x: 0, y: 0, scale: 2, format: "a\(number)")
            try store.put(Data("variant \(number % 3)".utf8), tile)
        }
        for (tile, text) in [
            (try TileAddress(z: 0, x: 0, y: 0), "zero"), (try TileAddress(z: 1, x: 1, y: 0, format: "png"), "one"),
            (try TileAddress(z: 1, x: 0, y: 1, format: "zzz"), "two"),
        ] { try store.put(Data(text.utf8), tile) }
        try store.publish(scratch("set"))
        let reader = try SetReader(scratch("set"))
        #expect(try reader.tile(z: 0, x: 0, y: 0)?.data == Data("zero".utf8))
        #expect(try reader.tile(z: 1, x: 0, y: 0) == nil)
        #expect(try reader.tile(z: 1, x: 1, y: 0)?.data == Data("one".utf8))
        #expect(try reader.tile(z: 1, x: 0, y: 1)?.data == Data("two".utf8))
        #expect(try reader.tile(z: 1, x: 1, y: 1) == nil)
        #expect(try reader.tile(z: 29, x: 0, y: 0) == nil)
        #expect(try reader.tile(z: 1, x: 2, y: -1) == nil)
    }

    /// Each file is lost, cut, made longer or damaged in turn.
    @Test func whatIsDamagedIsAnErrorAndNeverAnotherTile() throws {
        let store = try TileStore(at: scratch("cache"))
        let tiles = try random(7, count: 40, zooms: 0...3)
        for (tile, data) in tiles { try store.put(data, tile) }
        try store.publish(scratch("set"))
        let files = FileManager.default
        let paths = try #require(files.enumerator(atPath: scratch("set"))).compactMap { $0 as? String }
            .filter { $0.hasPrefix("objects/") && $0.count > 20 }
        #expect(paths.count > 20)
        for path in paths {
            let place = scratch("set/\(path)")
            let whole = try Data(contentsOf: URL(fileURLWithPath: place))
            var other = whole
            other[other.count / 2] ^= 1
            for (note, bytes) in [("lost", nil), ("cut", whole.dropLast()), ("longer", whole + [0]), ("other", other)] {
                try files.removeItem(atPath: place)
                if let bytes { try scratch.write(Data(bytes), to: "set/\(path)") }
                do {
                    let reader = try SetReader(scratch("set"))
                    for tile in tiles.keys {
                        let right = expected(tiles, z: tile.z, x: tile.x, y: tile.y)
                        do {
                            #expect(try reader.tile(z: tile.z, x: tile.x, y: tile.y)?.data == right, "\(note): \(path)")
                        } catch let error as ArchiveError { #expect(error.code == .damaged) }
                        if case .tile(let tile) = try reader.tileNow(z: tile.z, x: tile.x, y: tile.y) {
                            #expect(tile.data == right, "\(note): \(path)")
                        }
                    }
                } catch let error as ArchiveError { #expect(error.code == .damaged, "\(note): \(error)") }
                try? files.removeItem(atPath: place)
                try scratch.write(whole, to: "set/\(path)")
            }
        }
        try check(SetReader(scratch("set")), tiles, seed: 1, "whole again")
    }

    /// A list in the middle, of which opening reads nothing.
    @Test func aSetWhoseListsAreNotAllThereIsToldFromAWholeOne() throws {
        let store = try TileStore(at: scratch("cache"))
        for (tile, data) in try random(9, count: 6000, zooms: 8...9) { try store.put(data, tile) }
        try store.publish(scratch("set"))
        let reader = try SetReader(scratch("set"))
        try reader.checkLists()
        #expect(reader.items.count > 3)
        let list = scratch("set/\(SetPaths.list(reader.items[2].digest))")
        let whole = try Data(contentsOf: URL(fileURLWithPath: list))
        try FileManager.default.removeItem(atPath: list)
        let again = try SetReader(scratch("set"))
        #expect(message { try again.checkLists() }.contains("[damaged]"))
        try whole.write(to: URL(fileURLWithPath: list))
        try again.checkLists()
    }

    /// A set that is made by hand, with a tile a chunk, whatever that is.
    private func make(_ folder: String, _ tiles: [(key: String, body: String, size: Int)]) throws {
        func list(_ json: String) throws -> (name: String, length: Int) {
            let bytes = [UInt8](json.utf8)
            try scratch.write(try Gzip.encode(Data(bytes)), to: "\(folder)/\(SetPaths.list(bytes.digest))")
            return ("\(bytes.digest)", bytes.count)
        }
        var chunks: [String] = []
        for tile in tiles {
            let body = [UInt8](tile.body.utf8)
            try scratch.write(Data(body), to: "\(folder)/\(SetPaths.blob(body.digest))")
            let chunk = try list(
                #"{"kinds":[["image/png",null]],"runs":[["\#(tile.key)",1,"\#(body.digest)",\#(tile.size),0]]}"#)
            chunks.append(#"["\#(chunk.name)",1,\#(chunk.length)]"#)
        }
        let root = try list(#"{"chunks":[\#(chunks.joined(separator: ","))]}"#)
        let blobs = Set(tiles.map(\.body))
        let document = SetDocument(
            name: "s", time: Timestamp(seconds: 1), root: try #require(BlobDigest(root.name)), rootLength: root.length,
            tiles: tiles.count, blobs: blobs.count, bytes: blobs.reduce(0) { $0 + $1.utf8.count })
        try scratch.write(Data(document.encoded), to: "\(folder)/set.json")
    }

    private func publish(_ set: String, to folder: String) throws {
        try FileManager.default.createDirectory(atPath: scratch(folder), withIntermediateDirectories: true)
        let tiles = ArchiveToPublish(try SetReader(scratch(set)), observer: Notes())
        let publisher = SetPublisher(tiles, source: try SourceName("s"), now: Timestamp(seconds: 2))
        _ = try publisher.publish(into: DiskFileSystem(location: scratch(folder)))
    }

    private func problems(of set: String) throws -> String {
        let check = SetCheck(scratch(set), wantsStop: { false }, progress: { _, _ in })
        return try check.run().problems.lines.joined(separator: "\n")
    }

    /// A set whose first tile is of a higher zoom than its last one ended the program.
    @Test func aSetWhoseChunksAreNotInOrderIsAnErrorAndNoTrap() throws {
        for (number, keys) in [["1/1/1", "0/0/0"], ["1/1/1", "1/0/0"]].enumerated() {
            try make("\(number)", keys.map { ($0, "a", 1) })
            #expect(message { _ = try SetReader(scratch("\(number)")) }.contains("[damaged]"))
            #expect(try problems(of: "\(number)").contains("is not in its place"))
        }
        // Opening does not see these.
        for (number, keys) in [["0/0/0", "0/0/0"], ["0/0/0", "1/1/1", "1/0/0", "2/0/0"]].enumerated() {
            let set = "hidden\(number)"
            try make(set, keys.map { ($0, "a", 1) })
            let reader = try SetReader(scratch(set))
            #expect(message { try reader.forEachTile { _ in true } }.contains("not in its place, or is there twice"))
            #expect(message { try reader.forEachListed { _ in } }.contains("not in its place, or is there twice"))
            #expect(try problems(of: set).contains("is there twice"))
            #expect(message { try publish(set, to: "out\(number)") }.contains("[damaged]"))
            #expect(!FileManager.default.fileExists(atPath: scratch("out\(number)/set.json")))
        }
        try make("cut", [("0/0/0", "a", 1), ("1/0/0", "a", 1)])
        #expect(try problems(of: "cut").contains("no chunk begins at tile 1/0/0"))
    }

    /// It was published, and nobody could pull it.
    @Test func aBlobWithTwoSizesIsDamageAndNotPublished() throws {
        try make("set", [("0/0/0", "two", 3), ("1/0/0", "two", 2)])
        #expect(throws: SetError.self) { try publish("set", to: "out") }
        #expect(!FileManager.default.fileExists(atPath: scratch("out/set.json")))
        #expect(try problems(of: "set").contains("that it has 3 bytes, and 2"))
    }

    /// The publisher waited for whoever would write to the pipe.
    @Test func aPipeInTheFileOfATileIsDamage() throws {
        try make("set", [("0/0/0", "a", 1)])
        let path = scratch("set/\(SetPaths.blob([UInt8]("a".utf8).digest))")
        try FileManager.default.removeItem(atPath: path)
        #expect(mkfifo(path, 0o600) == 0)
        #expect(!message { try publish("set", to: "out") }.contains("no error"))
        #expect(!FileManager.default.fileExists(atPath: scratch("out/set.json")))
    }

    /// After going back to the former version its tiles outside of the latest one's box were not asked for.
    @Test func aFormerVersionDoesNotSayWhereTheLatestOneIs() throws {
        let store = try TileStore(at: scratch("cache"))
        let source = try SourceName("s")
        try FileManager.default.createDirectory(atPath: scratch("set"), withIntermediateDirectories: true)
        for (zoom, bounds) in [(0, "-180,-85,180,85"), (3, "1,2,3,4")] {
            try store.put(Data("zoom \(zoom)".utf8), try TileAddress(z: zoom, x: 0, y: 0))
            var publisher = SetPublisher(
                CacheTiles(store, folder: "", source: source), source: source, now: Timestamp(seconds: 1_700_000_000))
            publisher.copier = nil
            publisher.metadata = ["bounds": .string(bounds), "name": .string("a map"), "maxzoom": .integer(0)]
            _ = try publisher.publish(into: DiskFileSystem(location: scratch("set")))
        }
        let latest = try SetReader(scratch("set"))
        #expect(latest.metadata.bounds == (try GeoBox(west: 1, south: 2, east: 3, north: 4)))
        #expect(latest.metadata.zooms == 0...3)
        #expect(latest.statements.keys.sorted() == ["bounds", "maxzoom", "name"])
        let former = try SetReader(scratch("set"), version: try #require(latest.document.kept.first?.root))
        #expect(former.metadata.bounds == nil && former.metadata.name == "a map")
        #expect(former.metadata.zooms == 0...0)
        #expect(former.statements.keys.sorted() == ["maxzoom", "name"])
    }

    /// Each version of a set kept chunks of its own, so that memory grew with the number of versions that were asked for.
    @Test func chunksOfAllVersionsTakeBoundedMemory() throws {
        let cache = ChunkCache(mostTiles: 10)
        func chunk(_ number: Int, _ count: Int) throws -> (tiles: [SetTile], name: BlobDigest) {
            let name = [UInt8]("chunk \(number)".utf8).digest
            let tiles = try (0..<count).map {
                try #require(SetTile(TileAddress(z: 9, x: number, y: $0), name, size: 1, mediaType: nil, coding: nil))
            }
            return (tiles, name)
        }
        let chunks = try (0..<6).map { try chunk($0, 3) }
        for chunk in chunks {
            cache.insert(chunk.tiles, chunk.name)
            #expect(cache.find(chunk.name) == chunk.tiles)
            // The first one is used all the time.
            #expect(cache.find(chunks[0].name) == chunks[0].tiles)
        }
        #expect(chunks.map { cache.find($0.name) != nil } == [true, false, false, false, true, true])
        let huge = try chunk(7, 11)
        cache.insert(huge.tiles, huge.name)
        #expect(cache.find(huge.name) == nil && cache.find(chunks[0].name) != nil)
    }

    @Test func whatIsNoSetIsSaidToBeNone() throws {
        try scratch.write(Data("{}".utf8), to: "wrong/set.json")
        #expect(message { _ = try SetReader(scratch("nowhere")) }.contains("[notFound]"))
        #expect(message { _ = try SetReader(scratch("wrong")) }.contains("[notAnArchive]"))
        let store = try TileStore(at: scratch("cache"))
        try store.put(Data("x".utf8), try TileAddress(z: 0, x: 0, y: 0))
        try store.publish(scratch("set"))
        let digest = try SetReader(scratch("wrong/../set")).version
        #expect(try SetReader(scratch("set"), version: digest).version == digest)
        let other = Data("x".utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
        #expect(message { _ = try SetReader(scratch("set"), version: other) }.contains("[notFound]"))
        // Sets are made by publishing.
        let export = ArchiveExport(store: store, source: try SourceName("s"))
        #expect(
            message { _ = try export.run(to: scratch("new/set.json"), format: .set, observer: Notes()) }
                .contains("[invalidValue]"))
    }

    /// What a set says of itself, or what its tiles say.
    @Test func aSetIsDescribed() throws {
        let store = try TileStore(at: scratch("cache"))
        try store.put(Data("x".utf8), try TileAddress(z: 2, x: 0, y: 0), type: "image/webp")
        try store.put(Data("y".utf8), try TileAddress(z: 5, x: 0, y: 0), type: "image/webp")
        try store.publish(scratch("set"))
        let said = try SetReader(scratch("set")).metadata
        #expect(said.name == "s" && said.zooms == 2...5 && said.tileFormat == "webp")
    }

    /// A set goes into a cache by import too.
    @Test func aSetIsImported() throws {
        let store = try TileStore(at: scratch("cache"))
        let pyramid = Pyramid(seed: 5, zooms: 0...4, share: 2)
        try pyramid.write(to: scratch, "in")
        try store.take(scratch("in"))
        try store.publish(scratch("set"))
        let other = try TileStore(at: scratch("other"))
        #expect(try other.take(scratch("set/set.json")).tiles == pyramid.tiles.count)
        try other.give(scratch("out.mbtiles"))
        let reader = try ArchiveFormat.mbtiles.open(scratch("out.mbtiles"))
        #expect(try reader.everything().tiles.mapValues(\.data) == pyramid.tiles)
    }

    /// Tiles as a set has them whose publisher took the stored type for what they are.
    private struct Mislabelled: PublishableTiles {
        let tiles: CacheTiles
        let type: String
        func forEachTile(_ body: (SetTile) throws -> Void) throws -> Int {
            try tiles.forEachTile {
                let kind = try #require(SetKind(type: type, coding: $0.kind.coding))
                try body(SetTile(key: $0.key, blob: $0.blob, size: $0.size, kind: kind))
            }
        }
        func bytes(of tile: SetTile) throws -> [UInt8]? { try tiles.bytes(of: tile) }
        func lists(_ tile: SetTile) throws -> Bool { try tiles.lists(tile) }
        func file(of tile: SetTile) -> String? { nil }
        var advice: String { tiles.advice }
    }

    private func pictures(_ folder: String, type: String?) throws -> TileStore {
        let store = try TileStore(at: scratch(folder))
        for x in 0..<4 {
            try store.put(TestPicture.png("\(x / 2)"), TileAddress(z: 2, x: x, y: 1), type: type)
        }
        return store
    }

    /// A server without a table of types calls everything text or octets.
    @Test(arguments: [
        nil, "text/plain", "application/octet-stream", "binary/octet-stream", "Text/Plain; charset=utf-8",
    ])
    func tilesWhoseTypeSaysNothingArePublishedAsWhatTheyAre(type: String?) throws {
        let right = try pictures("right", type: "image/png").publish(scratch("a"))
        let report = try pictures("wrong", type: type).publish(scratch("b"))
        #expect(report.root == right.root)
        #expect(try SetReader(scratch("b")).metadata.tileFormat == "png")
    }

    @Test func aTypeThatNamesAFormatIsBelieved() throws {
        let store = try TileStore(at: scratch("cache"))
        let (picture, text) = (TestPicture.png("a"), Data("no format that is known".utf8))
        try store.put(picture, TileAddress(z: 1, x: 0, y: 0), type: "application/x-protobuf")
        try store.put(text, TileAddress(z: 1, x: 1, y: 0), type: "text/plain")
        try store.put(Data([0x1A, 1, 2]), TileAddress(z: 1, x: 1, y: 1), type: "application/octet-stream")
        try store.publish(scratch("set"))
        let reader = try SetReader(scratch("set"))
        #expect(try reader.tile(z: 1, x: 0, y: 0)?.mediaType == "application/x-protobuf")
        #expect(try reader.tile(z: 1, x: 1, y: 0)?.mediaType == "text/plain")
        #expect(try reader.tile(z: 1, x: 1, y: 1)?.mediaType == "application/vnd.mapbox-vector-tile")
    }

    /// A set that says of its pictures that they are octets is read, and published again as it is.
    @Test(arguments: ["text/plain", "application/octet-stream"])
    func whatASetSaysNothingOfIsToldByItsBytes(type: String) throws {
        let store = try pictures("cache", type: "image/png")
        let source = try SourceName("s")
        func publish(_ tiles: any PublishableTiles, _ folder: String) throws -> PublishReport {
            try FileManager.default.createDirectory(atPath: scratch(folder), withIntermediateDirectories: true)
            var publisher = SetPublisher(tiles, source: source, now: Timestamp(seconds: 1_700_000_000))
            publisher.copier = nil
            return try publisher.publish(into: DiskFileSystem(location: scratch(folder)))
        }
        let first = try publish(
            Mislabelled(tiles: CacheTiles(store, folder: "", source: source), type: type), "set")
        let reader = try SetReader(scratch("set"))
        #expect(reader.metadata.tileFormat == "png")
        #expect(try reader.tile(z: 2, x: 1, y: 1)?.mediaType == "image/png")
        if case .tile(let glanced) = try reader.tileNow(z: 2, x: 1, y: 1) { #expect(glanced.mediaType == "image/png") }
        let again = try publish(ArchiveToPublish(reader, observer: Notes()), "again")
        #expect(again.root == first.root, "going back to a version has its root")
        // Whose first tile is lost has a format that nobody knows.
        let blob = try #require(reader.tile(z: 2, x: 0, y: 1)?.data).withUnsafeBytes { BlobDigest(hashing: $0) }
        try FileManager.default.removeItem(atPath: scratch("set/\(SetPaths.blob(blob))"))
        #expect(try SetReader(scratch("set")).metadata.tileFormat == nil)
    }
}
