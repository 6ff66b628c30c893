import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Opening by the index image gives what opening by the manifest gives, or is not done.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct IndexImageTests {
    private static func configuration(_ images: StoreConfiguration.IndexImages) -> StoreConfiguration {
        var configuration = Lab.plain
        configuration.indexImages = images
        return configuration
    }

    /// Opens a copy of a disk by its image if that is good, and by its manifest.
    private static func check(
        _ disk: SimulatedDisk, byImage expected: Bool, _ what: Comment? = nil, isSound: Bool = true,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        let image = try Lab(configuration(.automatic), disk: disk.clone())
        let manifest = try Lab(configuration(.never), disk: disk.clone())
        let isByImage = image.store.commit.withLock { $0.chain.hasImage }
        #expect(isByImage == expected, what, sourceLocation: sourceLocation)
        let difference = difference(try image.store.snapshot(), try manifest.store.snapshot())
        #expect(difference == nil, what, sourceLocation: sourceLocation)
        if isSound { #expect(try image.store.invariantViolations() == [], what, sourceLocation: sourceLocation) }
        // What is not in a snapshot shows in what is done next: order of eviction, numbers of sets, free places.
        for lab in [image, manifest] {
            _ = try lab.store.evict(entries: 5)
            try lab.put(900..<910)
            _ = try lab.store.remove([lab.key(901)])
            _ = try lab.store.compact()
        }
        let after = TileStoreTesting.difference(try image.store.snapshot(), try manifest.store.snapshot())
        #expect(after == nil, what, sourceLocation: sourceLocation)
        if isSound { #expect(try image.store.invariantViolations() == [], what, sourceLocation: sourceLocation) }
    }

    private static var image: String { "manifest/index-1.bin" }

    /// A cache with something of everything, its image and a journal that goes on after it.
    private static func filled() throws -> Lab {
        let lab = try Lab(configuration(.automatic))
        try lab.put(0..<300)
        try lab.put(5..<20)
        let box = try PinnedRegion(
            name: "town",
            tiles: [
                SourceTiles(source: SourceName("lab"), spans: [TileSpan(zoom: 12, columns: 10...19, rows: 0...0)]),
                SourceTiles(source: SourceName("none"), spans: [TileSpan(zoom: 1, columns: 0...1, rows: 0...0)]),
            ], resources: (0..<20).map { try TileKey("lab:fonts/\($0).pbf?00112233445566778899aabbccddeeff") })
        try lab.store.pin(box)
        for number in 0..<40 {
            let key = try TileKey("lab:fonts/\(number).pbf?00112233445566778899aabbccddeeff")
            let fields = ResponseFields(
                mediaType: "application/x-protobuf", headers: [.init(name: "x-number", value: "\(number % 7)")])
            let metadata = TileMetadata(
                response: fields, etag: number % 3 == 0 ? "\"0123456789abcdef\"" : "W/\"tag-\(number)\"",
                lastModified: Timestamp(seconds: 1_600_000_000 + Int64(number)), storedAt: lab.clock.now,
                expires: lab.clock.now.adding(seconds: 60))
            try lab.store.put(number % 5 == 0 ? nil : lab.bytes(1000 + number % 9), for: key, metadata: metadata)
        }
        _ = try lab.store.remove([lab.key(30), lab.key(31)])
        _ = try lab.store.read(lab.key(3))
        try lab.store.flush()
        _ = try lab.store.compact()
        try lab.put(300..<320)
        #expect(try lab.store.writeIndexImage())
        return lab
    }

    @Test("An image opens as the manifest does, with and without a journal that goes on after it")
    func opensAlike() throws {
        let lab = try Self.filled()
        #expect(lab.disk.names("manifest").contains("index-1.bin"))
        try Self.check(lab.disk, byImage: true, "just written")
        try lab.put(310..<340)
        _ = try lab.store.remove([lab.key(2), lab.key(311)])
        try Self.check(lab.disk, byImage: true, "with a tail")
        _ = try lab.store.evict(entries: 100)
        _ = try lab.store.unpin("town")
        try Self.check(lab.disk, byImage: true, "with much gone")
    }

    @Test("Another compaction removes the image; the next one goes with the new checkpoint")
    func goesWithItsCheckpoint() throws {
        let lab = try Self.filled()
        _ = try lab.store.compact()
        #expect(!lab.disk.names("manifest").contains { $0.hasPrefix("index-") })
        try Self.check(lab.disk, byImage: false)
        #expect(try lab.store.writeIndexImage())
        #expect(lab.disk.names("manifest").contains("index-2.bin"))
        try Self.check(lab.disk, byImage: true)
    }

    @Test("Whatever is written while an image is copied is in it, or in the journal behind it", arguments: 0..<60)
    func writtenMeanwhile(seed: UInt64) throws {
        var random = SplitMix64(seed: seed &+ 31_000)
        let lab = try Lab(Self.configuration(.automatic))
        try lab.put(0..<(100 + random.below(2000)))
        _ = try lab.store.compact()
        func change() throws {
            switch random.below(6) {
            case 0: try lab.put(3000..<(3001 + random.below(200)))
            case 1:
                let first = random.below(2000)
                try lab.put(first..<(first + 1 + random.below(30)))
            case 2: _ = try lab.store.remove((0..<(1 + random.below(20))).map { _ in lab.key(random.below(2000)) })
            case 3: _ = try lab.store.evict(entries: max(20, try lab.store.statistics().entries - random.below(60)))
            case 4:
                for _ in 0..<20 { _ = try lab.store.read(lab.key(random.below(2000))) }
                try lab.store.flush()
            default:
                let key = try TileKey("lab:style-\(random.below(50)).json")
                let fields = ResponseFields(headers: [.init(name: "x-set", value: "\(random.below(30))")])
                let metadata = TileMetadata(response: fields, storedAt: lab.clock.now, expires: lab.clock.now)
                try lab.store.put(lab.bytes(random.below(50)), for: key, metadata: metadata)
            }
        }
        let image = try #require(try lab.store.beginIndexImage())
        var steps = 0
        while try image.step(bytes: 1 + random.below(1 << 15)), steps < 200 {
            try change()
            steps += 1
        }
        try change()
        #expect(try image.finish())
        try Self.check(lab.disk, byImage: true)
        try change()
        try Self.check(lab.disk, byImage: true)
    }

    @Test("An image with any of its bytes changed, or cut off anywhere, is not used")
    func damaged() throws {
        let lab = try Self.filled()
        let bytes = try #require(lab.disk.contents(Self.image))
        // Every byte of what is small, and some of every block.
        let words = bytes.withUnsafeBytes { raw in
            stride(from: 0, to: raw.count - 7, by: 8).map { raw.loadUnaligned(fromByteOffset: $0, as: UInt64.self) }
        }
        let tail = words.suffix(IndexImage.tailLength / 8)
        let (start, count, _) = try #require(
            bytes.withUnsafeBytes { raw in
                let at = raw.count - IndexImage.tailLength
                let tail = (0..<6).map { raw.loadUnaligned(fromByteOffset: at + $0 * 8, as: UInt64.self) }
                return IndexImage.directory(tail, of: 1)
            })
        #expect(tail.count == 6)
        var places = Set(0..<IndexImage.headLength)
        places.formUnion((bytes.count - IndexImage.tailLength)..<bytes.count)
        places.formUnion(stride(from: start, to: start + count * IndexImage.blockLength, by: 197))
        var kinds: Set<UInt32> = []
        for i in 0..<count {
            let block = try #require(
                bytes.withUnsafeBytes { raw in
                    let at = start + i * IndexImage.blockLength
                    return IndexImage.Block(
                        (0..<5).map { raw.loadUnaligned(fromByteOffset: at + $0 * 8, as: UInt64.self) }[...])
                })
            guard block.length > 0, kinds.insert(block.kind.rawValue).inserted || i % 97 == 0 else { continue }
            places.formUnion(
                [0, block.length / 3, block.length / 2, block.length - 1].map { block.offset + $0 })
        }
        #expect(kinds == Set(IndexImage.Kind.allCases.map(\.rawValue)))
        for place in places.sorted() {
            let disk = lab.disk.clone()
            disk.corrupt(Self.image) { $0[place] ^= 0x40 }
            let opened = try Lab(Self.configuration(.automatic), disk: disk)
            #expect(opened.store.commit.withLock { !$0.chain.hasImage }, "byte \(place)")
        }
        for length in [0, 1, 39, 40, 41, start - 1, start, start + 1, bytes.count - 1] {
            let disk = lab.disk.clone()
            disk.corrupt(Self.image) { $0.removeLast($0.count - length) }
            try Self.check(disk, byImage: false, "cut at \(length)")
        }
        let folder = lab.disk.clone()
        folder.remove(Self.image)
        folder.plantFolder(Self.image)
        try Self.check(folder, byImage: false, "a folder in its place")
        let stubborn = try Lab(Self.configuration(.automatic), disk: folder)
        #expect(try !stubborn.store.writeIndexImage())
        let disk = lab.disk.clone()
        disk.corrupt(Self.image) { $0.append(0) }
        try Self.check(disk, byImage: false, "one byte more")
    }

    @Test("Where checkpoint or journal are not those that it was made from, an image is not used")
    func manifestCounts() throws {
        let lab = try Self.filled()
        let journal = lab.journal
        let atImage = try #require(lab.disk.contents(journal)).count
        // The journal lost what the image has: a power cut, a backup.
        let cut = lab.disk.clone()
        cut.corrupt(journal) { $0.removeLast(40) }
        try Self.check(cut, byImage: false, "a shorter journal", isSound: false)
        // It went on otherwise from there.
        let other = try Lab(Self.configuration(.never), disk: cut.clone())
        try other.put(400..<440)
        #expect(try #require(other.disk.contents(other.journal)).count > atImage)
        try Self.check(other.disk, byImage: false, "another journal", isSound: false)
        // A line before the image's end is another one, of the same length.
        let changed = lab.disk.clone()
        changed.corrupt(journal) { $0[atImage - 9] ^= 1 }
        try Self.check(changed, byImage: false, "another last line", isSound: false)
        // A checkpoint that was put back from elsewhere.
        let checkpoint = lab.checkpoint
        let touched = lab.disk.clone()
        let text = try #require(touched.contents(checkpoint))
        touched.remove(checkpoint)
        lab.clock.advance(seconds: 7)
        touched.plant(checkpoint, text)
        try Self.check(touched, byImage: false, "another time of change")
        for place in [3, text.count - 3] {
            let edited = lab.disk.clone()
            edited.corrupt(checkpoint) { $0[place] ^= 1 }
            let opened = try Lab(Self.configuration(.automatic), disk: edited)
            #expect(opened.store.commit.withLock { !$0.chain.hasImage }, "checkpoint's byte \(place)")
        }
        // An image of another checkpoint under this one's name.
        let renamed = lab.disk.clone()
        let bytes = try #require(renamed.contents(Self.image))
        _ = try lab.store.compact()
        let newer = lab.disk.clone()
        newer.plant("manifest/index-2.bin", bytes)
        try Self.check(newer, byImage: false, "an older image")
    }

    @Test("Records of dropped blobs, and what is only in this process's memory, do not get into an image")
    func verifiedIsForgotten() throws {
        var configuration = Self.configuration(.automatic)
        configuration.digestCheck = .first
        let lab = try Lab(configuration)
        try lab.put(0..<10)
        _ = try lab.store.compact()
        #expect(try lab.store.read(lab.key(1)) != nil)
        #expect(try lab.store.writeIndexImage())
        lab.disk.corrupt(lab.digest(1).path) { $0[500] ^= 1 }
        try lab.reopen()
        #expect(lab.store.commit.withLock { $0.chain.hasImage })
        #expect(try lab.store.read(lab.key(1)) == nil)
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test("A failed write of an image leaves nothing behind and harms nobody", arguments: 0..<40)
    func failing(operation: Int) throws {
        let lab = try Self.filled()
        lab.disk.remove(Self.image)
        lab.files.fail(.init(at: operation, number: ENOSPC, scope: .all, persistent: false, short: operation % 2 == 1))
        let written = (try? lab.store.writeIndexImage()) ?? false
        if written { #expect(lab.disk.names("manifest").contains("index-1.bin")) }
        try lab.put(600..<603)
        #expect(lab.disk.names("staging").filter { $0.hasPrefix("index-") } == [])
        #expect(try lab.store.writeIndexImage())
        try Self.check(lab.disk, byImage: true)
    }

    @Test("An image with many segments is read on several threads, on a real disk")
    func onRealDisk() throws {
        let folder = TemporaryFolder()
        var configuration = StoreConfiguration()
        configuration.indexImages = .always
        func open() throws -> TileStore {
            var environment = StoreEnvironment.disk(at: folder.path)
            environment.background = false
            return try TileStore(environment: environment, configuration: configuration)
        }
        var store = try open()
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: "image/png"), etag: "\"5f1c9e77aa\"",
            storedAt: Timestamp(seconds: 1_700_000_000), expires: .distantFuture)
        for batch in 0..<20 {
            try store.put(
                (0..<2000).map { i in
                    let number = batch * 2000 + i
                    return TilePut(
                        key: try TileKey(source: "s", z: 16, x: number % 500, y: number / 500),
                        data: Data("\(number % 300)".utf8), metadata: metadata)
                })
        }
        let expected = try store.snapshot()
        try store.close()
        store = try open()
        #expect(store.commit.withLock { $0.chain.hasImage })
        #expect(difference(try store.snapshot(), expected) == nil)
        #expect(try store.invariantViolations() == [])
        // Somebody else might have written it: then it is not trusted.
        try store.close()
        let image = try #require(
            try FileManager.default.contentsOfDirectory(atPath: folder.path + "/manifest").first {
                $0.hasPrefix("index-")
            })
        try FileManager.default.setAttributes(
            [.posixPermissions: 0o666], ofItemAtPath: folder.path + "/manifest/" + image)
        configuration.indexImages = .automatic
        store = try open()
        #expect(store.commit.withLock { !$0.chain.hasImage })
        #expect(difference(try store.snapshot(), expected) == nil)
        try store.close()
    }
}
