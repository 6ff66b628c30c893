import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Files in a cache's folder that somebody forged, damaged or left behind: they are passed over and never trap or hang.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ForgedFilesTests {
    /// A line with a right checksum; `body` is an object without its closing brace.
    static func line(_ body: String) -> [UInt8] {
        let sum = Array(body.utf8).withUnsafeBytes { LineChecksum.of($0) }
        let digits = String(sum, radix: 16)
        return Array("\(body),\"c\":\"\(String(repeating: "0", count: 8 - digits.count))\(digits)\"}".utf8)
    }

    private static var readOnly: StoreConfiguration {
        var configuration = Lab.plain
        configuration.readOnly = true
        return configuration
    }

    // MARK: Damage and readers

    @Test("A store that may only read gets past damaged lines as a writer does, when it opens and when it follows")
    func readersGetPastDamage() throws {
        for follows in [false, true] {
            let lab = try Lab()
            try lab.put(0..<3)
            let early = follows ? try lab.another(Self.readOnly) : nil
            try lab.put(3..<20)
            lab.kill()
            let text = try #require(lab.disk.contents(lab.journal))
            let place = try #require(Data(text).range(of: Data("\"lab/12/5/0\"".utf8)))
            lab.disk.corrupt(lab.journal) { $0[place.lowerBound + 3] ^= 1 }
            let reader = try early ?? lab.another(Self.readOnly)
            try reader.catchUp()
            #expect(try reader.snapshot().entries.count == 19, "follows: \(follows)")
            try lab.reopen()
            try lab.put(30..<32)
            try reader.catchUp()
            #expect(try reader.snapshot() == lab.store.snapshot(), "follows: \(follows)")
            #expect(try reader.verify().journalDamage > 0)
            reader.simulateKill()
        }
    }

    @Test("A store that may only read waits at a torn end and goes on when a writer has cut it")
    func readersWaitAtATornEnd() throws {
        let lab = try Lab()
        try lab.put(0..<5)
        lab.kill()
        for tail in ["{\"key\":\"lab/1", "\n", "{\"gone\":[\n{\n"] {
            lab.disk.corrupt(lab.journal) { $0 += Array(tail.utf8) }
            let reader = try lab.another(Self.readOnly)
            for _ in 0..<3 { try reader.catchUp() }
            #expect(try reader.snapshot().entries.count == 5)
            try lab.reopen()
            let writer = lab.store
            try lab.put(10..<13)
            try reader.catchUp()
            #expect(try reader.snapshot() == writer.snapshot())
            _ = try writer.remove((10..<13).map(lab.key))
            try reader.catchUp()
            #expect(try reader.snapshot() == writer.snapshot())
            reader.simulateKill()
            lab.kill()
        }
    }

    // MARK: Numbers

    @Test(
        "A rotate record that does not lead to the next journal is a damaged line",
        arguments: ["0", "1", "2", "4", "9223372036854775807", "4503599627370496", "-1"])
    func rotateRecords(number: String) throws {
        let lab = try Lab()
        try lab.put(0..<3)
        for _ in 0..<2 { _ = try lab.store.compact() }
        try lab.put(3..<5)
        let reader = try lab.another(Self.readOnly)
        let before = try lab.store.snapshot()
        lab.disk.corrupt(lab.journal) { $0 += Self.line("{\"rotate\":\(number)") + [10] }
        try lab.store.catchUp()
        try reader.catchUp()
        #expect(try reader.snapshot() == before)
        reader.simulateKill()
        lab.kill()
        try lab.reopen()
        #expect(try lab.store.snapshot() == before)
        try lab.put(5..<8)
        _ = try lab.store.compact()
        try lab.reopen()
        #expect(try lab.store.snapshot().entries.count == 8)
        // The line is gone with its journal; that there was one is said until it is repaired.
        #expect(try !lab.store.verify().ok)
        _ = try lab.store.verify(repair: true)
        #expect(try lab.store.verify().ok)
        #expect(try lab.store.invariantViolations() == [])
    }

    @Test(
        "Numbers at the end of their range leave room for those that follow",
        arguments: [
            "{\"set\":4294967294,\"status\":200", "{\"set\":4294967295,\"status\":200",
            "{\"set\":2147483648,\"status\":200",
            "{\"set\":2147483647,\"status\":200",
            "{\"uses\":[\"lab/12/0/0\"],\"use\":281474976710655,\"at\":5",
            "{\"uses\":[\"lab/12/0/0\",\"lab/12/1/0\"],\"use\":281474976710654,\"at\":5",
            "{\"uses\":[\"lab/12/0/0\"],\"use\":9223372036854775807,\"at\":5",
            "{\"key\":\"lab/12/0/0\",\"set\":1,\"at\":1,\"exp\":2,\"use\":281474976710655",
            "{\"key\":\"lab/12/0/0\",\"set\":1,\"at\":4294967294,\"exp\":4294967294,\"use\":140737488355328",
            "{\"limits\":{\"bytes\":9223372036854775807,\"entries\":9223372036854775807}",
        ])
    func numbersAtTheirEnds(line: String) throws {
        let lab = try Lab()
        try lab.put(0..<3)
        lab.disk.corrupt(lab.journal) { $0 += Self.line(line) + [10] }
        for round in 0..<4 {
            for number in 0..<4 {
                var metadata = lab.metadata()
                metadata.response = ResponseFields(mediaType: "image/\(round)-\(number)")
                let key = lab.key(10 + round * 10 + number)
                try lab.store.put(lab.bytes(number), for: key, metadata: metadata)
                let tile = try lab.store.read(key)
                #expect(tile?.data == lab.bytes(number), "round \(round)")
                #expect(tile?.entry.metadata.response == metadata.response, "round \(round)")
            }
            try lab.store.flush()
            if round == 1 { _ = try lab.store.compact() }
            let before = try lab.store.snapshot()
            try lab.reopen()
            #expect(try lab.store.snapshot() == before, "round \(round)")
            #expect(try lab.store.invariantViolations() == [])
        }
        #expect(try lab.store.snapshot().entries.count == 19)
    }

    @Test(
        "A compaction after numbers that leapt writes a checkpoint that the next opening reads",
        arguments: [2, 15] as [UInt64])
    func numbersThatLeapt(leaps: UInt64) throws {
        let lab = try Lab()
        try lab.put(0..<3)
        for use in (1...leaps).map({ $0 << 44 - $0 }) {
            lab.disk.corrupt(lab.journal) {
                $0 += Self.line("{\"uses\":[\"lab/12/0/0\"],\"use\":\(use),\"at\":5") + [10]
            }
        }
        try lab.put(3..<6)
        let before = try lab.store.snapshot()
        _ = try lab.store.compact()
        try lab.reopen()
        #expect(try lab.store.snapshot() == before && before.entries.count == 6)
        #expect(try lab.store.verify().ok)
    }

    @Test("A store whose recency numbers are used up says so and goes on reading")
    func recencyIsUsedUp() throws {
        let lab = try Lab()
        try lab.put(0..<3)
        for step in 1...15 as ClosedRange<UInt64> {
            lab.disk.corrupt(lab.journal) {
                $0 += Self.line("{\"uses\":[\"lab/12/0/0\"],\"use\":\((step << 44)),\"at\":5") + [10]
            }
        }
        lab.disk.corrupt(lab.journal) {
            $0 += Self.line("{\"uses\":[\"lab/12/0/0\"],\"use\":\((1 as UInt64) << 48 - 1),\"at\":5") + [10]
        }
        let error = #expect(throws: StoreError.self) { try lab.put(3..<4) }
        #expect(error?.code == .damaged)
        #expect(try lab.store.read(lab.key(1))?.data == lab.bytes(1))
        try lab.store.flush()
        _ = try lab.store.remove([lab.key(2)])
        try lab.reopen()
        #expect(try lab.store.snapshot().entries.count == 2)
    }

    // MARK: Whole files

    @Test("Checkpoints that the store did not write are passed over, named by verify, and stop no compaction")
    func forgedCheckpoints() throws {
        let header = String(
            decoding: Self.line("{\"checkpoint\":8,\"format\":1,\"sequence\":9,\"nextSet\":1"), as: UTF8.self)
        let files: [(name: String, bytes: [UInt8])] = [
            ("checkpoint-7.json", []), ("checkpoint-7.json", [0, 10, 0]), ("checkpoint-18446744073709551615.json", []),
            ("checkpoint-9223372036854775808.json", [1]), ("checkpoint-4503599627370496.json", []),
            ("checkpoint-7.json", Array((header.dropLast() + ",\"records\":[\n]}\n").utf8)),
            ("journal-7.jsonl", []), ("journal-18446744073709551615.jsonl", [1]), ("index-9.bin", [2]),
            ("checkpoint-é.json", []), ("notes.txt", [3]),
        ]
        for file in files {
            let lab = try Lab()
            try lab.put(0..<5)
            for _ in 0..<2 { _ = try lab.store.compact() }
            try lab.put(5..<8)
            let before = try lab.store.snapshot()
            lab.disk.plant("manifest/\(file.name)", file.bytes)
            let reader = try lab.another(Self.readOnly)
            #expect(try reader.snapshot() == before, "\(file.name)")
            #expect(try reader.verify().foreign == ["manifest/\(file.name)"])
            reader.simulateKill()
            try lab.reopen()
            #expect(try lab.store.snapshot() == before, "\(file.name)")
            #expect(try lab.store.verify(repair: true).foreign == ["manifest/\(file.name)"])
            for round in 0..<8 {
                try lab.put((20 + round)..<(21 + round))
                #expect(try lab.store.compact().entries == 9 + round, "\(file.name)")
            }
            try lab.reopen()
            #expect(try lab.store.snapshot().entries.count == 16, "\(file.name)")
            #expect(try lab.store.verify().ok)
            #expect(try lab.store.invariantViolations() == [])
        }
    }

    @Test("A header that tells of a hundred million entries in a small file takes no memory for them")
    func numbersOfEntries() throws {
        let lab = try Lab()
        try lab.put(0..<3)
        _ = try lab.store.compact()
        lab.kill()
        lab.disk.corrupt(lab.checkpoint) { bytes in
            let end = bytes.firstIndex(of: 10) ?? 0
            let body =
                "{\"checkpoint\":1,\"format\":1,\"sequence\":9,\"nextSet\":2,\"entries\":134217728,\"blobs\":134217728"
            bytes.replaceSubrange(..<end, with: Self.line(body).dropLast() + Array(",\"records\":[".utf8))
        }
        for name in lab.disk.names("manifest") where name.hasPrefix("index-") { lab.disk.remove("manifest/\(name)") }
        let before = residentBytes()
        try lab.reopen()
        #expect(residentBytes() - before < 200 << 20)
        #expect(try lab.store.snapshot().entries.count == 3)
        #expect(try lab.store.verify().ok)
    }

    private func residentBytes() -> Int {
        guard let text = try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8) else { return 0 }
        return (Int(text.split(separator: " ").dropFirst().first ?? "") ?? 0) * 4096
    }

    @Test(
        "A tilecache.json without a salt is an error",
        arguments: [
            "{\"format\":1}", "{\"format\":1,\"salt\":\"\"}", "{\"format\":1,\"salt\":7}",
            "{\"format\":1,\"salt\":\"zz23456789abcdef0123456789abcdef\"}",
            "{\"format\":9223372036854775808,\"salt\":\"\"}",
        ])
    func markers(text: String) throws {
        let lab = try Lab()
        lab.kill()
        lab.disk.plant("tilecache.json", Array(text.utf8))
        #expect(throws: StoreError.self) { try lab.reopen() }
    }

    // MARK: Things that are no files

    enum Thing: CaseIterable { case folder, pipe, link, danglingLink, pipeThatIsHeldOpen }

    @Test(
        "Folders, pipes and links in the places of files make errors or are passed over; nothing hangs",
        arguments: [
            "tilecache.json", "lock", "compact.lock", "CACHEDIR.TAG", "manifest/journal-1.jsonl",
            "manifest/checkpoint-1.json", "manifest/index-1.bin", "manifest/reserve", "manifest/checkpoint-5.json",
            "staging",
            "quarantine", "objects", "manifest", "staging/x", "quarantine/x", "objects/zz", "sources",
        ], Thing.allCases)
    func thingsThatAreNoFiles(path: String, thing: Thing) throws {
        let folder = TemporaryFolder()
        let clock = ManualClock()
        func openStore(_ readOnly: Bool) throws -> TileStore {
            var configuration = Lab.plain
            configuration.readOnly = readOnly
            configuration.indexImages = .always
            return try TileStore(
                environment: clock.environment(DiskFileSystem(location: folder.path)), configuration: configuration)
        }
        let metadata = TileMetadata(storedAt: clock.now, expires: clock.now)
        let key = try TileKey("a/0/0/0")
        var store = try openStore(false)
        try store.put(Data([1, 2]), for: key, metadata: metadata)
        _ = try store.compact()
        store.simulateKill()
        let place = folder.path + "/" + path
        if FileManager.default.fileExists(atPath: place) { try FileManager.default.removeItem(atPath: place) }
        let victim = TemporaryFolder()
        try FileManager.default.createDirectory(atPath: victim.path, withIntermediateDirectories: true)
        try Data([7]).write(to: URL(fileURLWithPath: victim.path + "/precious"))
        var held: Int32 = -1
        switch thing {
        case .folder: try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: false)
        case .pipe: #expect(mkfifo(place, 0o600) == 0)
        case .pipeThatIsHeldOpen:
            #expect(mkfifo(place, 0o600) == 0)
            held = open(place, O_RDWR | O_NONBLOCK)
        case .link: try FileManager.default.createSymbolicLink(atPath: place, withDestinationPath: victim.path)
        case .danglingLink: try FileManager.default.createSymbolicLink(atPath: place, withDestinationPath: "nowhere")
        }
        defer { if held >= 0 { close(held) } }
        // Old enough to be swept, wherever it lies.
        clock.advance(seconds: 400_000_000)
        for readOnly in [true, false] {
            do {
                store = try openStore(readOnly)
                _ = try store.read(key)
                _ = try store.verify()
                if !readOnly {
                    try store.put(Data([3]), for: key, metadata: metadata)
                    _ = try store.compact()
                    _ = try store.verify(repair: true)
                }
                store.simulateKill()
            } catch {
                #expect(error is StoreError, "\(error)")
                #expect(!"\(error)".isEmpty)
            }
        }
        #expect(try Data(contentsOf: URL(fileURLWithPath: victim.path + "/precious")) == Data([7]))
    }

    @Test("Names that are no Unicode, or look like others, stop nothing")
    func oddNames() throws {
        let folder = TemporaryFolder()
        let clock = ManualClock()
        let metadata = TileMetadata(storedAt: clock.now, expires: clock.now)
        func openStore() throws -> TileStore {
            try TileStore(
                environment: clock.environment(DiskFileSystem(location: folder.path)), configuration: Lab.plain)
        }
        let store = try openStore()
        let key = try TileKey("a/0/0/0")
        try store.put(Data([1]), for: key, metadata: metadata)
        for parent in ["", "manifest/", "objects/", "staging/", "quarantine/", "objects/4b/"] {
            for name in [
                [0xFF, 0xFE], Array("checkpoint-3.jso\u{301}n".utf8), Array("journal-٣.jsonl".utf8), [0x0A, 0x22],
            ] {
                let path = Array((folder.path + "/" + parent).utf8) + name
                // Some systems refuse names that are no Unicode.
                let made = open((path + [0]).map { CChar(bitPattern: $0) }, O_CREAT | O_WRONLY, 0o600)
                if made >= 0 { close(made) }
            }
        }
        _ = try store.verify(repair: true)
        _ = try store.evict()
        _ = try store.compact()
        #expect(try store.read(key)?.data == Data([1]))
        store.simulateKill()
        clock.advance(seconds: 400_000_000)
        let again = try openStore()
        let report = try again.verify()
        #expect(report.ok)
        #expect(report.foreign.contains { $0.hasPrefix("manifest/journal-") })
        #expect(try again.read(key)?.data == Data([1]))
        again.simulateKill()
    }
}
