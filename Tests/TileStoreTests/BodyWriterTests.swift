import Foundation
import Testing
import TileStore
import TileStoreTesting

/// Bodies that come in pieces: stored as a put of the same bytes, readable meanwhile, and gone where they are given up.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct BodyWriterTests {
    private static func lab(durable: Bool = false, _ check: StoreConfiguration.DigestCheck = .always) throws -> Lab {
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        configuration.digestCheck = check
        return try Lab(configuration)
    }

    /// Appends in pieces of a size.
    private static func append(_ bytes: Data, to writer: BodyWriter, pieces: Int = 777) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            try rest.prefix(pieces).withUnsafeBytes { try writer.append($0) }
            rest = rest.dropFirst(pieces)
        }
    }

    private static func read(_ body: StagedBody, from: Int = 0) throws -> Data {
        var bytes = Data(count: body.count - from)
        try bytes.withUnsafeMutableBytes { try body.read(into: $0, at: from) }
        return bytes
    }

    private static func staged(_ lab: Lab) -> [String] {
        lab.disk.names("staging")
    }

    @Test(arguments: [false, true], [0, 1, 100, 5000, 300_000])
    func aBodyInPiecesIsStoredAsAPutOfTheSameBytes(durable: Bool, size: Int) throws {
        for memory in [0, 100, 4999, 1 << 20] {
            let (pieces, whole) = (try Self.lab(durable: durable), try Self.lab(durable: durable))
            let bytes = whole.bytes(1, size: size)
            // Twice: the second time the bytes are there.
            for round in 0..<2 {
                let others = [TilePut(key: whole.key(10 + round), data: whole.bytes(2), metadata: whole.metadata())]
                let writer = try pieces.store.beginBody(limit: size, inMemoryUpTo: memory)
                try Self.append(bytes, to: writer)
                let staged = Self.staged(pieces).count
                #expect(staged == (size > memory ? 1 : 0))
                let mine = try writer.commit(for: pieces.key(round), metadata: pieces.metadata(), with: others)
                let first = TilePut(key: whole.key(round), data: bytes, metadata: whole.metadata())
                #expect(try mine == whole.store.put([first] + others))
                #expect(Self.staged(pieces) == [])
                #expect(try Self.read(writer.body) == bytes)
            }
            #expect(difference(try pieces.store.snapshot(), try whole.store.snapshot()) == nil)
            for number in 0..<2 { #expect(try pieces.store.read(pieces.key(number))?.data == bytes) }
            #expect(try pieces.store.invariantViolations() == [])
            try pieces.reopen()
            #expect(difference(try pieces.store.snapshot(), try whole.store.snapshot()) == nil)
        }
    }

    @Test(arguments: [0, 1 << 20])
    func aBodyIsReadWhileItIsWrittenAndWhateverBecomesOfIt(memory: Int) throws {
        let lab = try Self.lab()
        let bytes = lab.bytes(1, size: 20_000)
        for end in 0..<4 {
            let writer = try lab.store.beginBody(limit: bytes.count, inMemoryUpTo: memory)
            try Self.append(bytes.prefix(9000), to: writer)
            #expect(writer.body.count == 9000)
            #expect(try Self.read(writer.body, from: 5000) == bytes[5000..<9000])
            var room = [UInt8](repeating: 0, count: 9001)
            let isMore = room.withUnsafeMutableBytes { writer.body.readNow(into: $0, at: 0) }
            #expect(!isMore, "what has not come yet")
            let error = #expect(throws: StoreError.self) {
                try room.withUnsafeMutableBytes { try writer.body.read(into: $0, at: 0) }
            }
            #expect(error?.code == .invalidValue)
            switch end {
            case 0: writer.abort()
            case 1:
                #expect(throws: StoreError.self) {
                    try Self.append(lab.bytes(2, size: 20_000), to: writer, pieces: 20_000)
                }
            default:
                try Self.append(bytes.dropFirst(9000), to: writer)
                try writer.commit(for: lab.key(end), metadata: lab.metadata())
                if end == 3 { _ = try lab.store.evict(toBytes: 0) }
            }
            #expect(Self.staged(lab) == [])
            #expect(try Self.read(writer.body) == bytes.prefix(end < 2 ? 9000 : 20_000), "end \(end)")
            let isThere = try lab.store.entry(for: lab.key(end)) != nil
            #expect(isThere == (end == 2))
            #expect(try lab.store.invariantViolations() == [])
            // It is over, however it ended.
            #expect(throws: StoreError.self) { try Self.append(bytes, to: writer) }
            #expect(throws: StoreError.self) { try writer.commit(for: lab.key(90), metadata: lab.metadata()) }
        }
    }

    @Test func aWriterThatIsForgottenLeavesNothing() throws {
        let lab = try Self.lab()
        var writer: BodyWriter? = try lab.store.beginBody(limit: 10_000, inMemoryUpTo: 0)
        try Self.append(lab.bytes(1), to: #require(writer))
        #expect(Self.staged(lab).count == 1)
        let body = try #require(writer).body
        writer = nil
        #expect(Self.staged(lab) == [])
        #expect(try Self.read(body) == lab.bytes(1))
    }

    @Test func aBodyPastItsLimitIsRefusedAndGone() throws {
        let lab = try Self.lab()
        for memory in [0, 1 << 20] {
            let writer = try lab.store.beginBody(limit: 5000, inMemoryUpTo: memory)
            try Self.append(lab.bytes(1, size: 5000), to: writer)
            let error = #expect(throws: StoreError.self) { try Self.append(Data([1]), to: writer) }
            #expect(error?.code == .invalidValue && error?.message.contains("5000") == true)
            #expect(Self.staged(lab) == [])
        }
        // What may be stored depends on the capacity, unless a region pins it.
        try lab.store.setLimits(StoreLimits(capacity: 10_000))
        #expect(lab.store.largestBody(for: lab.key(1)) == 8192)
        let writer = try lab.store.beginBody(limit: .max, inMemoryUpTo: 0)
        try Self.append(lab.bytes(1, size: 8193), to: writer)
        #expect(try writer.commit(for: lab.key(1), metadata: lab.metadata()) == [.largerThanCapacity])
        #expect(Self.staged(lab) == [])
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test(
        "A disk that fills up while a body comes has its space back, and nothing is recorded", arguments: [false, true])
    func aFullDiskEndsABody(durable: Bool) throws {
        let lab = try Self.lab(durable: durable)
        try lab.put(0..<3)
        let before = try lab.store.snapshot()
        for room in stride(from: 0, to: 12_000, by: 997) {
            let used = lab.disk.used
            lab.disk.capacity = used + room
            var failure: StoreError?
            do {
                let writer = try lab.store.beginBody(limit: 100_000, inMemoryUpTo: 0)
                let bytes = lab.bytes(9, size: 12_000)
                do {
                    try Self.append(bytes, to: writer)
                    try writer.commit(for: lab.key(9), metadata: lab.metadata())
                } catch let error as StoreError { failure = error }
                // What did not get to the disk is not among what can be read.
                #expect(try Self.read(writer.body) == bytes.prefix(writer.body.count), "room \(room)")
            }
            #expect(failure?.code == .diskFull, "room \(room)")
            #expect(Self.staged(lab) == [] && lab.disk.used == used, "room \(room)")
            #expect(try lab.store.snapshot() == before)
            #expect(try lab.store.invariantViolations() == [])
        }
    }

    @Test("A body mends a damaged blob with the same bytes, also one that looks right", arguments: [false, true])
    func aBodyMendsADamagedBlob(durable: Bool) throws {
        let lab = try Self.lab(durable: durable)
        for (number, size) in [(1, 5000), (2, 2_000_000)] {
            let bytes = lab.bytes(number, size: size)
            let digest = bytes.withUnsafeBytes { BlobDigest(hashing: $0) }
            try lab.store.put(bytes, for: lab.key(number), metadata: lab.metadata())
            for damage in 0..<3 {
                lab.clock.advance(seconds: 2)
                switch damage {
                case 0: lab.disk.corrupt(digest.path) { $0[size / 2] ^= 1 }
                case 1: lab.disk.corrupt(digest.path) { $0.removeLast() }
                default: lab.disk.remove(digest.path)
                }
                let writer = try lab.store.beginBody(limit: size, inMemoryUpTo: 0)
                try Self.append(bytes, to: writer, pieces: 100_000)
                let outcome = try writer.commit(for: lab.key(number + 10), metadata: lab.metadata())
                #expect(outcome == [.stored(blob: digest, newBlob: false)])
                for key in [number, number + 10] { #expect(try lab.store.read(lab.key(key))?.data == bytes) }
            }
        }
        #expect(try lab.store.verify().ok)
        #expect(Self.staged(lab) == [])
    }

    @Test(
        "Killed at any operation, a body and what is stored with it are both there or both not",
        arguments: [false, true])
    func aBodyAndItsCompanionAreRecordedTogether(durable: Bool) throws {
        for operation in 0..<1000 {
            let lab = try Self.lab(durable: durable)
            try lab.put(0..<1)
            lab.files.crash(at: operation, torn: false)
            let isDone: Bool
            do {
                let writer = try lab.store.beginBody(limit: 5000, inMemoryUpTo: 1000)
                try Self.append(lab.bytes(2, size: 5000), to: writer)
                try writer.commit(
                    for: lab.key(2), metadata: lab.metadata(),
                    with: [TilePut(key: lab.key(1), data: nil, metadata: lab.metadata())])
                isDone = true
            } catch { isDone = false }
            // The writer has gone by now, in a process that has gone: its file is still there.
            try lab.reopen()
            let there = try [1, 2].map { try lab.store.entry(for: lab.key($0)) != nil }
            #expect(there[0] == there[1], "operation \(operation)")
            #expect(!isDone || there[0])
            #expect(lab.disk.names("staging") == [], "operation \(operation)")
            #expect(try lab.store.verify().ok)
            if isDone { return }
        }
        Issue.record("the body never came to its end")
    }

    @Test func aStoreThatIsClosedTakesNoMoreOfABody() throws {
        let lab = try Self.lab()
        let writers = try [0, 1 << 20].map { try lab.store.beginBody(limit: 10_000, inMemoryUpTo: $0) }
        for writer in writers { try Self.append(lab.bytes(1), to: writer) }
        try lab.store.close()
        for (i, writer) in writers.enumerated() {
            let error = #expect(throws: StoreError.self) {
                if i == 0 { try Self.append(lab.bytes(1), to: writer) }
                try writer.commit(for: lab.key(1), metadata: lab.metadata())
            }
            #expect(error?.code == .closed)
        }
        #expect(lab.disk.names("staging") == [])
        #expect(throws: StoreError.self) { try lab.store.beginBody(limit: 1) }
        var configuration = Lab.plain
        configuration.readOnly = true
        let reader = try lab.another(configuration)
        let error = #expect(throws: StoreError.self) { try reader.beginBody(limit: 1) }
        #expect(error?.code == .readOnly)
    }

    @Test("An abort beside an append or a commit on another thread neither waits nor harms it")
    func abortsComeAtAnyTime() throws {
        let folder = TemporaryFolder()
        let store = try TileStore(at: folder.path)
        let metadata = TileMetadata(storedAt: Timestamp(seconds: 1), expires: Timestamp(seconds: 2))
        let bytes = Data((0..<400_000).map { UInt8(truncatingIfNeeded: $0 &* 31) })
        for round in 0..<60 {
            let writer = try store.beginBody(limit: 1 << 20, inMemoryUpTo: 1000)
            let key = try TileKey("a/9/\(round)/0")
            let isStored = Locked(false)
            DispatchQueue.concurrentPerform(iterations: 2) { thread in
                guard thread == 0 else {
                    while writer.body.count < round * 7000 % 450_000, !isStored.withLock({ $0 }) { sched_yield() }
                    return writer.abort()
                }
                defer { isStored.withLock { $0 = true } }
                // Given up in the middle, or not.
                _ = try? Self.append(bytes, to: writer, pieces: 9001)
                _ = try? writer.commit(for: key, metadata: metadata)
            }
            #expect(try store.read(key).map { $0.data == bytes } ?? true)
            _ = try store.remove([key])
        }
        let left = try FileManager.default.contentsOfDirectory(atPath: folder.path + "/staging")
        #expect(left == [])
        #expect(try store.invariantViolations() == [])
        try store.close()
    }

    @Test("Bodies of two stores on one folder are read at any pace while they come, and are stored whole")
    func manyBodiesAtOnce() throws {
        let folder = TemporaryFolder()
        let stores = try (0..<2).map { _ in try TileStore(at: folder.path) }
        let metadata = TileMetadata(storedAt: Timestamp(seconds: 1), expires: Timestamp(seconds: 2))
        // Real tiles, one after the other, and again: bodies from some kilobytes to a megabyte.
        let sample = try Self.sample()
        let bodies = (0..<6).map { number in
            (0...(number * number)).reduce(into: Data()) { $0 += sample[(number + $1) % sample.count] }
        }
        let wrong = Locked<[String]>([])
        let writers = try bodies.indices.map { try stores[$0 % 2].beginBody(limit: 1 << 24, inMemoryUpTo: 4096) }
        let isOver = Locked<Set<Int>>([])
        DispatchQueue.concurrentPerform(iterations: bodies.count * 3) { thread in
            let (number, role) = (thread / 3, thread % 3)
            let (bytes, writer) = (bodies[number], writers[number])
            do {
                if role == 0 {
                    defer { isOver.withLock { _ = $0.insert(number) } }
                    try Self.append(bytes, to: writer, pieces: 1021 + number * 4099)
                    try writer.commit(for: try TileKey("a/9/\(number)/0"), metadata: metadata)
                    return
                }
                var (read, room) = (Data(), [UInt8](repeating: 0, count: role * 3000))
                while read.count < bytes.count {
                    let count = min(room.count, writer.body.count - read.count)
                    if count == 0, isOver.withLock({ $0.contains(number) }), writer.body.count == read.count { break }
                    try room.withUnsafeMutableBytes { room in
                        let piece = UnsafeMutableRawBufferPointer(rebasing: room[..<count])
                        if role == 1 || !writer.body.readNow(into: piece, at: read.count) {
                            try writer.body.read(into: piece, at: read.count)
                        }
                    }
                    read += room[..<count]
                    if count == 0 { sched_yield() }
                }
                if read != bytes { wrong.withLock { $0.append("a reader of body \(number) got other bytes") } }
            } catch { wrong.withLock { $0.append("body \(number), role \(role): \(error)") } }
        }
        #expect(wrong.withLock { $0 } == [])
        for store in stores {
            for number in bodies.indices {
                try store.catchUp()
                #expect(try store.read(TileKey("a/9/\(number)/0"))?.data == bodies[number])
            }
            #expect(try store.invariantViolations() == [])
        }
        for store in stores { try store.close() }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path + "/staging") == [])
    }

    /// Tiles of the sample map.
    private static func sample() throws -> [Data] {
        let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appendingPathComponent("Sample/world")
        let paths = try #require(FileManager.default.enumerator(atPath: folder.path)?.compactMap { $0 as? String })
        let tiles = paths.filter { $0.hasSuffix(".png") || $0.hasSuffix(".pbf") || $0.hasSuffix(".jpg") }.sorted()
        return try tiles.prefix(40).map { try Data(contentsOf: folder.appendingPathComponent($0)) }
    }
}
