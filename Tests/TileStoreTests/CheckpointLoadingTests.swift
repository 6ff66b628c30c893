import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// However a checkpoint is read, in halves by several threads or line by line, the same tables come of it.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct CheckpointLoadingTests {
    private static var configuration: StoreConfiguration {
        var configuration = Lab.plain
        configuration.indexImages = .never
        return configuration
    }

    /// A cache with a bit of everything that a checkpoint can hold.
    private static func filled(_ random: inout SplitMix64) throws -> Lab {
        let lab = try Lab(configuration)
        let names = ["lab", "sea", "a-rather-long-name.of_a_source"]
        func pin(_ number: Int) throws {
            let first = random.below(30)
            try lab.store.pin(
                PinnedRegion(
                    name: "r\(number)", source: SourceName(names[random.below(2)]),
                    spans: [TileSpan(zoom: 12, columns: first...(first + random.below(40)), rows: 0...3)], box: nil))
        }
        for number in 0..<random.below(3) { try pin(number) }
        for _ in 0..<(100 + random.below(400)) {
            let name = names[random.below(3)]
            let format = random.below(3) == 0 ? "@2x.webp" : ""
            let text =
                random.below(6) == 0
                ? "\(name):glyphs/\(random.below(20)).pbf?00112233445566778899aabbccddeeff"
                : "\(name)/12/\(random.below(80))/\(random.below(6))\(format)"
            let etags: [String?] = [nil, "\"0123abcd\"", "W/\"0123abcd\"", "\"quoted\\\"\u{e9}\"", "\"plain\""]
            let fields = ResponseFields(
                mediaType: "image/png",
                headers: random.below(4) == 0 ? [.init(name: "x-n", value: "\(random.below(9))")] : [])
            let metadata = TileMetadata(
                response: fields, etag: etags[random.below(5)],
                lastModified: random.below(2) == 0 ? Timestamp(seconds: 1_500_000_000) : nil,
                storedAt: lab.clock.now, expires: lab.clock.now.adding(seconds: Int64(random.below(90))))
            let body = random.below(8) == 0 ? nil : lab.bytes(random.below(40), size: 100 + random.below(2))
            try lab.store.put(body, for: TileKey(text), metadata: metadata)
            if random.below(5) == 0 { lab.clock.advance(seconds: 7) }
        }
        for _ in 0..<40 { _ = try lab.store.read(TileKey("sea/12/\(random.below(80))/\(random.below(6))")) }
        try lab.store.flush()
        _ = try lab.store.remove((0..<30).map { _ in try TileKey("lab/12/\(random.below(80))/\(random.below(6))") })
        try pin(7)
        _ = try lab.store.compact()
        if random.below(2) == 0 { try lab.put(0..<(1 + random.below(30))) }
        return lab
    }

    /// A line with its checksum.
    private static func line(_ body: String) -> String {
        let sum = Array(body.utf8).withUnsafeBytes { LineChecksum.of($0) }
        let digits = String(sum, radix: 16)
        return body + ",\"c\":\"" + String(repeating: "0", count: 8 - digits.count) + digits + "\"},"
    }

    /// Changes a checkpoint's lines, and the count in its last one.
    private static func edit(_ lab: Lab, _ change: (inout [String]) throws -> Void) throws -> SimulatedDisk {
        let disk = lab.disk.clone()
        let bytes = try #require(disk.contents(lab.checkpoint))
        var lines = String(decoding: bytes, as: UTF8.self).split(separator: "\n").map(String.init)
        #expect(lines.removeLast() == "]}")
        lines.removeLast()
        try change(&lines)
        lines.append(String(line("{\"end\":\(lines.count - 1)").dropLast()))
        disk.plant(lab.checkpoint, Array((lines.joined(separator: "\n") + "\n]}\n").utf8))
        return disk
    }

    private static func body(_ line: String) -> String {
        String(line.prefix(upTo: line.range(of: ",\"c\":\"", options: .backwards)?.lowerBound ?? line.endIndex))
    }

    @Test("A checkpoint that is unlike our own is read line by line, and gives the same", arguments: 0..<24)
    func bothWaysAlike(seed: UInt64) throws {
        var random = SplitMix64(seed: seed &+ 77_000)
        let lab = try Self.filled(&random)
        let usual = try Self.edit(lab) { _ in }
        #expect(usual.contents(lab.checkpoint) == lab.disk.contents(lab.checkpoint))
        let unusual = try Self.edit(lab) { lines in
            let puts = lines.indices.filter { lines[$0].hasPrefix("{\"key\":") }
            let at = puts[random.below(puts.count)]
            switch seed % 4 {
            case 0: lines.insert(Self.line("{\"gone\":[]"), at: at)
            case 1: lines.insert(lines[at], at: at)
            case 2:
                lines[at] = Self.line(Self.body(lines[at]).replacingOccurrences(of: "{\"key\":", with: "{ \"key\" : "))
            default:
                // An older state of a key, with another blob, that a later line replaces.
                let digest = lab.digest(5_000)
                let key = Self.body(lines[at]).prefix { $0 != "," }
                let set = try #require(Self.body(lines[at]).range(of: "\"set\":[0-9]+", options: .regularExpression))
                lines.insert(
                    Self.line(
                        "\(key),\"blob\":\"\(digest)\",\"size\":1000,\(Self.body(lines[at])[set]),\"at\":1700000000"
                            + ",\"exp\":1700000000,\"use\":1"), at: at)
            }
        }
        let first = try Lab(Self.configuration, disk: usual)
        let second = try Lab(Self.configuration, disk: unusual)
        #expect(first.store.commit.withLock { $0.readsLineByLine } == 0)
        #expect(second.store.commit.withLock { $0.readsLineByLine } == 1)
        #expect(second.store.commit.withLock { $0.damagedLines } == 0)
        for lab in [first, second] { #expect(try lab.store.invariantViolations() == []) }
        #expect(difference(try first.store.snapshot(), try second.store.snapshot()) == nil)
        // What is not in a snapshot shows in what is done next.
        for lab in [first, second] {
            _ = try lab.store.evict(entries: 60)
            _ = try lab.store.unpin("r7")
            _ = try lab.store.evict(entries: 40)
            try lab.put(900..<910)
            _ = try lab.store.compact()
            #expect(try lab.store.invariantViolations() == [])
        }
        #expect(difference(try first.store.snapshot(), try second.store.snapshot()) == nil)
        try first.reopen()
        #expect(difference(try first.store.snapshot(), try second.store.snapshot()) == nil)
    }

    private struct Stopped: Error {}

    @Test(
        "Each stage sees every chunk once and in order, after the stage before it", arguments: 0...3,
        [64, 300, 1 << 16])
    func stages(helpers: Int, chunkSize: Int) throws {
        let disk = SimulatedDisk(clock: ManualClock())
        let count = 2_000
        let head = "{\"checkpoint\":0}\n"
        let lines = (0..<count).map { String(Self.line("{\"drop\":\"\($0)\"")) + "\n" }
        disk.plant("list", Array((head + lines.joined() + "]}\n").utf8))
        let files = SimulatedFileSystem(disk)
        let file = try files.open("list", .read)
        // For each stage: the bodies it saw, and how many chunks. A stage looks at what the one before it has done.
        let seen = (0..<3).map { _ in Locked<(bodies: [String], chunks: Int, running: Int)>(([], 0, 0)) }
        func stage(_ i: Int) -> CheckpointReader.Stage {
            { chunk in
                seen[i].withLock {
                    $0.running += 1
                    #expect($0.running == 1)
                    #expect($0.chunks == chunk.number)
                }
                if i > 0 { #expect(seen[i - 1].withLock { $0.chunks } > chunk.number) }
                let bodies = chunk.others.map { String(decoding: $0.body, as: UTF8.self) }
                seen[i].withLock {
                    $0.bodies += bodies
                    $0.chunks += 1
                    $0.running -= 1
                }
            }
        }
        try CheckpointReader.read(files, file, helpers: helpers, chunkSize: chunkSize, stages: (0..<3).map(stage))
        for i in 0..<3 {
            let bodies = seen[i].withLock { $0.bodies }
            #expect(bodies == (0..<count).map { "{\"drop\":\"\($0)\"" })
        }

        // One that throws ends it: of what is left, no more is begun than chunks are on the way.
        let (stopping, begun) = (Locked(0), Locked(0))
        #expect(throws: Stopped.self) {
            try CheckpointReader.read(
                files, file, helpers: helpers, chunkSize: 256,
                stages: [
                    { _ in begun.withLock { $0 += 1 } },
                    { chunk in
                        stopping.withLock { $0 += 1 }
                        if chunk.number == 3 { throw Stopped() }
                    },
                ])
        }
        #expect(stopping.withLock { $0 } == 4)
        #expect(begun.withLock { $0 } <= 4 + helpers + 1 + 2)
    }

    @Test("A table's order of use is that of its recencies, however they lie", arguments: 0..<12)
    func order(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        var table = Segments<BlobRecord>()
        let widths: [UInt64] = [1, 50, 1 << 20, 1 << 36, 1 << 37, 1 << 47]
        let width = widths[Int(seed) % widths.count]
        var expected: [(recency: UInt64, slot: UInt32)] = []
        for number in 0..<(20_000 * (seed < 6 ? 1 : 0) + random.below(300)) {
            guard let slot = table.append() else { return }
            var record = BlobRecord(digest: BlobDigest(hashing: UnsafeRawBufferPointer(start: nil, count: 0)), size: 1)
            record.recency = seed < 9 ? 1 + random.next() % width : UInt64(number)
            if random.below(9) == 0 { record.flags = 0 } else { expected.append((record.recency, slot)) }
            table.change(slot).initialize(to: record)
        }
        expected.sort { ($0.recency, $0.slot) < ($1.recency, $1.slot) }
        let list = RecencyList(of: table) { $0.isLive }
        var found: [UInt32] = []
        var (at, before) = (list.first, noSlot)
        while at != noSlot {
            found.append(at)
            let behind = table[at].pointee.before
            #expect(behind == before)
            let isListed = list.contains(at, in: table)
            #expect(isListed)
            (before, at) = (at, table[at].pointee.after)
        }
        #expect(list.last == before)
        #expect(found == expected.map(\.slot))
    }
}
