import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Numbers of names, entries and blobs have a fixed width.
///
/// What comes beyond is refused, and never said to be stored.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct BoundsTests {
    private let clock = ManualClock()
    private let disk: SimulatedDisk

    init() { disk = SimulatedDisk(clock: clock) }

    private func open(names: Int? = nil, slots: Int? = nil, readOnly: Bool = false) throws -> TileStore {
        var environment = clock.environment(SimulatedFileSystem(disk), seed: clock.ticks)
        clock.advance(nanoseconds: 1)
        if let names { environment.bounds.names = names }
        if let slots { environment.bounds.slots = slots }
        var configuration = Lab.plain
        configuration.readOnly = readOnly
        return try TileStore(environment: environment, configuration: configuration)
    }

    private func tile(_ key: String, _ text: String? = nil, type: String = "image/png") throws -> TilePut {
        TilePut(
            key: try TileKey(key), data: text.map { Data($0.utf8) },
            metadata: TileMetadata(
                response: ResponseFields(mediaType: type), storedAt: clock.now, expires: .distantFuture))
    }

    private func put(_ key: String, _ text: String? = nil, type: String = "image/png", into store: TileStore) throws {
        try store.put([tile(key, text, type: type)])
    }

    private func keys(_ store: TileStore) throws -> [String] {
        try store.catchUp()
        return try store.snapshot().entries.map { "\($0.key)" }
    }

    /// Puts several tiles of which the one after `stored` is refused; those before it are to be kept, and nothing else.
    private func expectRefusal(_ tiles: [TilePut], stored: Int, by store: TileStore) throws {
        let before = try keys(store)
        let error = #expect(throws: StoreError.self) { try store.put(tiles) }
        #expect(error?.code == .tooMany)
        #expect(error?.message.contains("\(tiles[stored].key)") ?? false, "\(error?.message ?? "")")
        #expect(try keys(store) == (before + tiles[..<stored].map { "\($0.key)" }).sorted())
        #expect(try store.invariantViolations() == [])
        #expect(try store.verify().ok)
    }

    @Test("The source after the 65,535th is refused, and a manifest that has it is not opened")
    func theSourceAfterTheLastNumberIsRefused() throws {
        let most = 65_535
        let store = try open()
        try store.put((0..<most).map { try tile("s\($0)/0/0/0") })
        try put("s0/1/0/0", into: store)
        #expect(throws: StoreError.self) { try put("one.more/0/0/0", "a tile", into: store) }
        #expect(throws: StoreError.self) { try put("one.more:style.json", into: store) }
        #expect(throws: StoreError.self) {
            try store.pin(
                PinnedRegion(
                    name: "home", source: SourceName("one.more"),
                    spans: [TileSpan(zoom: 0, columns: 0...0, rows: 0...0)]))
        }
        try put("s65534/1/0/0", into: store)
        #expect(try store.statistics().entries == most + 2)
        try store.close()
        // A version that can number one more writes it.
        let later = try open(names: most + 1)
        try put("one.more/0/0/0", "a tile", into: later)
        let error = #expect(throws: StoreError.self) { try open() }
        #expect(error?.code == .tooMany && error?.message.contains("65535 sources") ?? false)
        #expect(throws: StoreError.self) { try open(readOnly: true) }
        _ = try later.remove([TileKey("one.more/0/0/0")])
        _ = try later.compact()
        #expect(try open().statistics().entries == most + 2)
    }

    @Test("Of a batch, what comes before the first name without a number is stored")
    func aBatchIsStoredUpToTheFirstNameWithoutANumber() throws {
        let store = try open(names: 3)
        try put("a/0/0/0", into: store)
        let sources = try ["b/0/0/0", "c/0/0/0", "a/1/0/0", "d/0/0/0", "b/1/0/0"].map { try tile($0, $0) }
        try expectRefusal(sources, stored: 3, by: store)
        // The first variant has no scale and no format, and a number already.
        let variants = try ["a/2/0/0@2x", "a/2/0/0.png", "a/2/0/0.webp", "a/2/0/0"].map { try tile($0, $0) }
        try expectRefusal(variants, stored: 2, by: store)
        try expectRefusal([tile("d:style.json", "{}")], stored: 0, by: store)
        for key in ["a:style.json", "b/2/0/0.png", "c/2/1/0@2x"] { try put(key, key, into: store) }
        #expect(try keys(open(names: 3)) == keys(store))
    }

    @Test("The entry or the blob after the last that there is room for is refused")
    func entriesAndBlobsHaveABound() throws {
        let store = try open(slots: 4)
        try expectRefusal((0..<6).map { try tile("a/3/\($0)/0", "same") }, stored: 4, by: store)
        _ = try store.remove([TileKey("a/3/1/0")])
        try put("a/4/0/0", "other", into: store)
        // Other bytes for keys that have an entry need room for the bytes alone.
        for x in [0, 2] { try put("a/3/\(x)/0", "bytes \(x)", into: store) }
        try expectRefusal([tile("a/5/0/0", "more")], stored: 0, by: store)
        // The new blob is there before the old one goes.
        try expectRefusal([tile("a/3/0/0", "yet others")], stored: 0, by: store)
        #expect(try keys(open(slots: 4)) == keys(store))
        #expect(throws: StoreError.self) { try open(slots: 3) }
    }

    @Test("A store that remembers too many names loads its tables anew to read one more")
    func namesThatAreGoneMakeRoom() throws {
        let store = try open(names: 3)
        for source in ["a", "b", "c"] { try put("\(source)/0/0/0", source, into: store) }
        let other = try open(names: 3)
        _ = try store.remove([TileKey("a/0/0/0")])
        _ = try other.compact()
        let fresh = try open(names: 3)
        try put("d/0/0/0", "d", into: fresh)
        for reader in [store, other] {
            try reader.catchUp()
            #expect(try reader.read(TileKey("d/0/0/0"))?.data == Data("d".utf8))
            #expect(try reader.invariantViolations() == [])
            #expect(try reader.verify().ok)
        }
    }

    @Test("A store that cannot number what another one has written says so, and touches nothing")
    func moreNamesThanAFollowerCanNumber() throws {
        let (store, other) = (try open(names: 2), try open(names: 3))
        for source in ["a", "b"] { try put("\(source)/0/0/0", source, into: store) }
        try put("c/0/0/0", "c", into: other)
        for _ in 0..<2 {
            #expect(throws: StoreError.self) { try store.catchUp() }
            #expect(throws: StoreError.self) { try put("a/1/0/0", "more", into: store) }
            #expect(throws: StoreError.self) { try store.verify(repair: true) }
            #expect(throws: StoreError.self) { try store.evict() }
        }
        #expect(try other.verify().ok && keys(other).count == 3)
        _ = try other.remove([TileKey("b/0/0/0")])
        _ = try other.compact()
        try put("a/1/0/0", "more", into: store)
        #expect(try keys(store) == ["a/0/0/0", "a/1/0/0", "c/0/0/0"])
    }

    @Test("Numbers of sets of fields that were all given out are given out again, and stand for the new fields alone")
    func numbersOfSetsAreGivenOutAgain() throws {
        let store = try open()
        try put("a/0/0/0", "1", type: "image/first", into: store)
        _ = try store.compact()
        store.simulateKill()
        let path = "manifest/checkpoint-1.json"
        var lines = String(decoding: try #require(disk.contents(path)), as: UTF8.self).split(separator: "\n").map(
            String.init)
        let header = try #require(lines.first)
        let body = try #require(header.components(separatedBy: ",\"c\":").first)
            .replacingOccurrences(of: "\"nextSet\":2", with: "\"nextSet\":4294967294")
        #expect(body.contains("4294967294"))
        let sum = Array(body.utf8).withUnsafeBytes { String(LineChecksum.of($0), radix: 16) }
        lines[0] = body + ",\"c\":\"" + String(repeating: "0", count: 8 - sum.count) + sum + "\",\"records\":["
        disk.plant(path, Array((lines.joined(separator: "\n") + "\n").utf8))
        let late = try open()
        let types = (0..<6).map { "image/\($0)" }
        for round in 0..<3 {
            try late.put((0..<6).map { try tile("b/3/\($0)/\(round)", type: types[($0 + round) % 6] + "\(round)") })
            _ = try late.compact()
        }
        for again in [late, try open()] {
            for round in 0..<3 {
                for x in 0..<6 {
                    let entry = try #require(try again.entry(for: TileKey("b/3/\(x)/\(round)")))
                    #expect(entry.metadata.response.mediaType == types[(x + round) % 6] + "\(round)")
                }
            }
            #expect(try again.entry(for: TileKey("a/0/0/0"))?.metadata.response.mediaType == "image/first")
        }
    }
}
