package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// One thing to put, by the numbers of its parts: see ``Universe``.
package struct PutStep: Equatable, Sendable, CustomStringConvertible {
    package var key: UInt8
    /// 255 for no body.
    package var payload: UInt8
    package var metadata: UInt8
    package init(_ key: UInt8, _ payload: UInt8, _ metadata: UInt8) {
        self.key = key
        self.payload = payload
        self.metadata = metadata
    }
    package var description: String { "PutStep(\(key), \(payload), \(metadata))" }
}

/// What is done to a blob's file behind the store's back.
package enum Damage: Equatable, Sendable { case truncate, alter, grow, delete, folder, link }

/// One step of a script.
///
/// Everything is named by small numbers, so that steps collide and print as Swift source.
package enum Step: Equatable, Sendable {
    case put(PutStep)
    case batch([PutStep])
    /// Begins a payload that comes in pieces, in the place of the one with this number.
    ///
    /// It stays in memory up to so many bytes.
    case bodyBegin(UInt8, payload: UInt8, memory: Int)
    /// Appends so many of its bytes, or what is left, and reads back what there is.
    case bodyAppend(UInt8, Int)
    /// Appends the rest and stores it, and then some puts in the same hold of the lock.
    case bodyCommit(UInt8, key: UInt8, metadata: UInt8, with: [PutStep])
    case bodyAbort(UInt8)
    case get(UInt8)
    /// Reads without first reading what other stores have written: the answer may be the older one.
    case glance(UInt8)
    /// Looks at the entry without a use.
    case look(UInt8)
    case refresh(UInt8, metadata: UInt8, right: Bool)
    case touch(UInt8, right: Bool)
    case expire(Int)
    case remove([UInt8], pinned: Bool)
    case removeSelected(Int, pinned: Bool)
    case pin(name: UInt8, area: UInt8)
    case unpin(UInt8)
    /// Both in blocks and entries; -1 for none.
    case evict(blocks: Int, entries: Int)
    /// In blocks, plus some bytes; -1 for no limit.
    case limit(blocks: Int, entries: Int)
    case flush
    case compact
    case compactBegin
    case compactStep(Int)
    case compactFinish
    case compactAbandon
    case imageBegin
    /// Copies about so many bytes of the tables.
    case imageStep(Int)
    case imageFinish
    case reopen
    /// Closes the store and opens it with limits in its configuration, as ``limit`` has them; -1 for none given.
    case reopenLimited(blocks: Int, entries: Int)
    case crash
    /// The machine starts anew: both stores are gone with the uses that they had not recorded.
    case restart
    /// Goes on with one of the two stores, which is opened if it is not.
    case use(store: Int)
    /// Closes the store that is not in use.
    case closeOther
    /// Another process compacts twice, so that the store in use cannot follow the journals: it loads its tables anew, at once.
    case overtake
    /// The same behind the store's back: when it is about to take the cache's lock for the n-th time from now.
    case ambush(after: Int)
    /// Goes on with both stores on another thread; 0 is the script's own.
    case thread(Int)
    /// The folder is removed, and another process makes a new cache in its place.
    case replaceFolder
    /// A third store, which may only read and stays open, catches up and reads a key.
    case follow(UInt8)
    case clock(Int)
    /// Damages the blob of a payload, if it is live, and reads it.
    case damage(UInt8, Damage)
    /// Damages the blob of a payload, if it is live, and puts the right bytes again.
    case mend(UInt8, Damage)
    case verify(quick: Bool, repair: Bool)
}

/// How a script is run.
package struct ScriptSetting: Equatable, Sendable {
    /// Blobs are kept in memory and checked on their first read; then damage is not among the steps.
    package var memoryTier = false
    package var durable = false
    /// Index images are written after every compaction, at every close and by steps of their own, and opening reads them.
    package var images = false
    /// The second store has the other durability than the first.
    package var mixed = false
    package init(memoryTier: Bool = false, durable: Bool = false, images: Bool = false, mixed: Bool = false) {
        self.memoryTier = memoryTier
        self.durable = durable
        self.images = images
        self.mixed = mixed
    }
}

/// The few keys, payloads, metadata and regions that scripts are made of.
package enum Universe {
    package static let keys: [TileKey] = {
        var texts: [String] = []
        for source in ["base", "osm-x"] {
            for x in 0..<4 { for y in 0..<3 { texts.append("\(source)/3/\(x)/\(y)") } }
            texts += ["\(source)/4/1/1@2x", "\(source)/4/1/1.png", "\(source)/4/1/1", "\(source)/4/1/1@2x.webp"]
            texts += ["\(source):style.json", "\(source):fonts/a.pbf?00112233445566778899aabbccddeeff"]
        }
        texts.append("base:glyphs/0-255.pbf?00112233445566778899aabbccddeeff#ffeeddccbbaa99887766554433221100")
        texts.append("base:glyphs/0-255.pbf#ffeeddccbbaa99887766554433221100")
        // The ends of what a key can be.
        let long = String(repeating: "A-z_0.9", count: 10).prefix(64)
        texts += ["base/0/0/0", "base/28/268435455/0", "\(long)/28/268435455/268435455@8x.abcdefghijkl"]
        texts.append("\(long):" + String(repeating: "~/x", count: 341) + "!")
        return texts.compactMap { try? TileKey($0) }
    }()

    package static func key(_ number: UInt8) -> TileKey { keys[Int(number) % keys.count] }

    package static let payloads: [Data] = [0, 1, 10, 63, 64, 65, 100, 128, 129, 200, 256, 300, 400, 512, 700, 1500]
        .enumerated().map { index, size in
            var random = SplitMix64(seed: UInt64(index) + 77)
            return Data((0..<size).map { _ in UInt8(truncatingIfNeeded: random.next()) })
        }

    package static let digests: [BlobDigest] = payloads.map { $0.withUnsafeBytes { BlobDigest(hashing: $0) } }

    package static let payloadByDigest: [BlobDigest: Data] = Dictionary(
        zip(digests, payloads), uniquingKeysWith: { a, _ in a })

    /// `nil` from 128 on.
    package static func payload(_ number: UInt8) -> Data? {
        number >= 128 ? nil : payloads[Int(number) % payloads.count]
    }

    private static let responses: [ResponseFields] = [
        ResponseFields(mediaType: "image/png"),
        ResponseFields(mediaType: "image/png", headers: [.init(name: "X-Cache-Tag", value: "a \"b\" \\ ü")]),
        ResponseFields(
            mediaType: "application/x-protobuf", contentEncoding: "gzip", staleWhileRevalidate: 60, staleIfError: 86400,
            mustRevalidate: true, noCache: false),
        ResponseFields(status: 404),
        ResponseFields(status: 203, mediaType: "text/html; charset=\"utf-8\"", noCache: true),
        ResponseFields(
            status: 599, mediaType: "", staleWhileRevalidate: Int(Int32.max), staleIfError: 1,
            headers: [
                .init(name: "Link", value: String(repeating: "<a>; ", count: 60)), .init(name: "Link", value: ""),
                .init(name: "", value: "\u{1}\t\r\n\u{2028}\u{1F5FA}"),
            ]),
    ]

    // Those of hexadecimal digits are packed, up to 64 of them without being made into text.
    private static let tags: [String?] = [
        nil, nil, "\"v1\"", "W/\"v2\"", "\"q\\uote\u{7F}d, é\"", "\"5f1c\"", "W/\"0aF\"", "\"\"", "W/\"\"", "unquoted",
        "W/\"5f1c0\"", "\"" + String(repeating: "9e", count: 32) + "\"",
        "\"" + String(repeating: "9e", count: 33) + "\"",
        "W/\"" + String(repeating: "0", count: 507) + "\"", String(repeating: "t", count: 512),
    ]

    package static func metadata(_ number: UInt8, now: Timestamp) -> TileMetadata {
        var random = SplitMix64(seed: UInt64(number))
        return TileMetadata(
            response: random.pick(responses),
            etag: random.pick(tags),
            lastModified: random.pick([nil, Timestamp(seconds: 1_600_000_000), now, .distantPast, .distantFuture]),
            storedAt: now,
            date: random.pick([
                nil, nil, nil, now, now, now.adding(seconds: -20), now.adding(seconds: 30), .distantPast,
            ]),
            initialAge: random.pick([0, 0, 7, Int(Int32.max)]),
            expires: random.pick([
                now, now.adding(seconds: 10), now.adding(seconds: 3600), .distantFuture, .distantPast,
            ]))
    }

    package static func selection(_ number: Int) -> EntrySelection {
        var selection = EntrySelection()
        switch number % 6 {
        case 0: selection.source = try? SourceName("osm-x")
        case 1: selection.zooms = 4...5
        case 2: selection.stale = true
        case 3: selection.keys = [keys[1], keys[2], keys[20]]
        case 4:
            selection.source = try? SourceName("base")
            selection.zooms = 0...3
        default: break
        }
        return selection
    }

    package static func region(name: UInt8, area: UInt8) -> PinnedRegion? {
        let names = ["home", "office", "trip"]
        let source = area % 2 == 0 ? "base" : "osm-x"
        var spans: [TileSpan] = []
        switch area / 2 % 4 {
        case 0: spans = [try? TileSpan(zoom: 3, columns: 0...1, rows: 0...1)].compactMap { $0 }
        case 1: spans = [try? TileSpan(zoom: 3, columns: 1...3, rows: 1...2)].compactMap { $0 }
        case 2:
            spans = [
                try? TileSpan(zoom: 4, columns: 1...1, rows: 1...1),
                try? TileSpan(zoom: 3, columns: 0...0, rows: 0...7),
            ].compactMap { $0 }
        default: spans = [try? TileSpan(zoom: 5, columns: 0...31, rows: 0...31)].compactMap { $0 }
        }
        guard let source = try? SourceName(source), let other = try? SourceName("base") else { return nil }
        let box = area % 3 == 0 ? try? GeoBox(west: -10.25, south: -20, east: 30.5, north: 40.125) : nil
        var tiles = [SourceTiles(source: source, spans: spans)]
        var resources: [TileKey] = []
        switch area / 8 % 4 {
        // Of several things: tiles of two sources, and a resource with its variants.
        case 1:
            if source != other { tiles.append(SourceTiles(source: other, spans: spans)) }
            resources = ["base:glyphs/0-255.pbf", "osm-x:style.json"].compactMap { try? TileKey($0) }
        // Of resources alone.
        case 2:
            tiles = []
            resources = [
                "base:glyphs/0-255.pbf?00112233445566778899aabbccddeeff", "base:style.json", "gone:style.json",
            ]
            .compactMap { try? TileKey($0) }
        default: break
        }
        return try? PinnedRegion(
            name: names[Int(name) % names.count], tiles: tiles, resources: resources, box: box)
    }
}

extension Step {
    /// A script of so many steps; damage is left out where what is kept in memory would hide it.
    package static func script(count: Int, setting: ScriptSetting, using random: inout SplitMix64) -> [Step] {
        // Scripts differ in what they do most, so that rare states get their turn.
        let keyCount = random.pick([4, 12, Universe.keys.count])
        // In half of them the few keys are of all kinds and sources.
        let isMixed = random.oneIn(2)
        let keys = (0..<keyCount).map { UInt8(isMixed ? random.below(Universe.keys.count) : $0) }
        let payloadCount = random.pick([3, 8, Universe.payloads.count])
        let stores = random.oneIn(2)
        let compacts = random.oneIn(2)
        let follows = random.oneIn(2)
        let overtakes = random.oneIn(3)
        let threads = random.oneIn(3)
        let bodies = random.oneIn(2)
        var begunBodies: Set<Int> = []
        var steps: [Step] = []
        if !random.oneIn(4) { steps.append(randomLimit(&random)) }
        func put(_ random: inout SplitMix64) -> PutStep {
            PutStep(
                random.pick(keys), random.oneIn(8) ? 255 : UInt8(random.below(payloadCount)),
                UInt8(random.below(80)))
        }
        func key(_ random: inout SplitMix64) -> UInt8 { random.pick(keys) }
        while steps.count < count {
            if overtakes, random.oneIn(4) {
                steps.append(random.oneIn(3) ? .ambush(after: random.below(4)) : .overtake)
            }
            if threads, random.oneIn(6) { steps.append(.thread(random.below(3))) }
            if bodies, random.oneIn(3) {
                let number = random.below(3)
                if begunBodies.insert(number).inserted {
                    steps.append(
                        .bodyBegin(
                            UInt8(number), payload: UInt8(random.below(payloadCount)),
                            memory: random.pick([0, 0, 64, 300, 1 << 18])))
                } else if random.oneIn(2) {
                    steps.append(.bodyAppend(UInt8(number), random.below(400)))
                } else {
                    begunBodies.remove(number)
                    let most = random.oneIn(4) ? 12 : 4
                    let others = random.oneIn(3) ? (0..<(1 + random.below(most))).map { _ in put(&random) } : []
                    steps.append(
                        random.oneIn(5)
                            ? .bodyAbort(UInt8(number))
                            : .bodyCommit(
                                UInt8(number), key: key(&random), metadata: UInt8(random.below(80)), with: others))
                }
            }
            switch random.below(100) {
            case 0..<25: steps.append(.put(put(&random)))
            case 25..<29:
                let count = 1 + random.below(random.below(4) == 0 ? 16 : 6)
                steps.append(.batch((0..<count).map { _ in put(&random) }))
            case 29..<41: steps.append(.get(key(&random)))
            case 41..<43: steps.append(.look(key(&random)))
            case 43..<47:
                steps.append(
                    .refresh(key(&random), metadata: UInt8(random.below(80)), right: !random.oneIn(4)))
            case 47..<51: steps.append(.touch(key(&random), right: !random.oneIn(4)))
            case 51..<53: steps.append(.expire(random.below(6)))
            case 53..<56:
                steps.append(
                    .remove((0..<(1 + random.below(3))).map { _ in key(&random) }, pinned: random.oneIn(3)))
            case 56: steps.append(.removeSelected(random.below(6), pinned: random.oneIn(3)))
            case 57..<59: steps.append(.pin(name: UInt8(random.below(3)), area: UInt8(random.below(32))))
            case 59..<61: steps.append(.unpin(UInt8(random.below(3))))
            case 61..<63:
                steps.append(
                    .evict(
                        blocks: random.oneIn(3) ? -1 : random.below(40),
                        entries: random.oneIn(3) ? -1 : random.below(20)))
            case 63..<65: steps.append(randomLimit(&random))
            case 65..<68: steps.append(.flush)
            case 68: steps.append(.compact)
            case 69..<72: steps.append(setting.images && random.oneIn(2) ? .imageBegin : .compactBegin)
            case 72..<80:
                if setting.images, random.oneIn(2) {
                    steps.append(.imageStep(1 + random.below(1 << 16)))
                } else {
                    steps.append(compacts ? .compactStep(1 + random.below(6)) : .put(put(&random)))
                }
            case 80..<82: steps.append(setting.images && random.oneIn(2) ? .imageFinish : .compactFinish)
            case 82: steps.append(random.oneIn(3) ? .compactAbandon : .compactStep(3))
            case 83: steps.append(random.oneIn(3) ? randomLimit(&random, atOpening: true) : .reopen)
            case 84: steps.append(random.oneIn(3) ? .restart : .crash)
            case 85..<91: steps.append(stores ? .use(store: random.below(2)) : .get(key(&random)))
            case 91..<94: steps.append(stores ? .glance(key(&random)) : .get(key(&random)))
            case 94: steps.append(stores && random.oneIn(3) ? .closeOther : .put(put(&random)))
            case 95: steps.append(.clock(random.pick([1, 10, 100, 4000, -1, -50, -4000])))
            case 96, 97:
                if setting.memoryTier {
                    steps.append(.get(key(&random)))
                } else {
                    let payload = UInt8(random.below(payloadCount))
                    let damage = random.pick([Damage.truncate, .alter, .grow, .delete, .folder, .link])
                    steps.append(random.oneIn(3) ? .mend(payload, damage) : .damage(payload, damage))
                }
            case 98:
                steps.append(
                    random.oneIn(6) ? .replaceFolder : .verify(quick: random.oneIn(2), repair: random.oneIn(2)))
            default: steps.append(follows ? .follow(key(&random)) : .clock(random.below(30)))
            }
        }
        return steps
    }

    private static func randomLimit(_ random: inout SplitMix64, atOpening: Bool = false) -> Step {
        let blocks = random.oneIn(5) ? -1 : random.pick([0, 3, 8, 15, 20, 30, 60, 250])
        let entries = random.pick([0, 1, 3, 5, 10, 20, 20, 1000])
        if atOpening { return .reopenLimited(blocks: blocks, entries: random.oneIn(2) ? -1 : entries) }
        return .limit(blocks: blocks, entries: entries)
    }

    /// Whether it puts something, which may make evictions necessary.
    var isPut: Bool {
        switch self {
        case .put, .batch, .bodyCommit: true
        default: false
        }
    }

    /// Whether it may make several records, so that a part of them can be there after it was interrupted.
    var mayRecordMany: Bool {
        switch self {
        case .get, .glance, .look, .refresh, .touch, .flush, .clock, .damage, .bodyBegin, .bodyAppend, .bodyAbort: false
        default: true
        }
    }
}

/// A script as Swift source, to be pasted into a regression test.
package func source(of script: [Step], setting: ScriptSetting) -> String {
    let lines = script.map { step in
        let text = "\(step)".replacing("TileStoreTesting.", with: "").replacing("Damage.", with: ".")
        return "        .\(text),"
    }
    return "replay(\n    [\n\(lines.joined(separator: "\n"))\n    ],\n    setting: ScriptSetting(memoryTier: "
        + "\(setting.memoryTier), durable: \(setting.durable), images: \(setting.images), mixed: \(setting.mixed)))"
}

extension String {
    fileprivate func replacing(_ part: String, with other: String) -> String {
        var result = ""
        var rest = self[...]
        while let start = rest.range(ofPart: part) {
            result += rest[..<start.lowerBound] + other
            rest = rest[start.upperBound...]
        }
        return result + rest
    }
}

extension Substring {
    fileprivate func range(ofPart part: String) -> Range<Index>? {
        var at = startIndex
        while at < endIndex {
            if self[at...].hasPrefix(part) { return at..<index(at, offsetBy: part.count) }
            at = index(after: at)
        }
        return nil
    }
}
