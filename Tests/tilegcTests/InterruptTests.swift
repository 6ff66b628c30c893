import Foundation
import Testing
import TileStoreTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Commands that are stopped in the middle lose nothing that was done, and running them again completes them.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct InterruptTests {
    private let scratch: Scratch
    private let cache: String
    private let pyramid = Pyramid(seed: 6, zooms: 0...6, sizes: 40...1500)

    init() throws {
        scratch = try Scratch()
        cache = scratch("cache")
        try pyramid.write(to: scratch("in"))
    }

    /// The size of the manifest's first journal: how far an import is.
    private var journalBytes: Int {
        var status = stat()
        return stat(cache + "/manifest/journal-0.jsonl", &status) == 0 ? Int(status.st_size) : 0
    }

    /// Starts an import and sends it a signal once the manifest has so many bytes.
    private func interrupt(_ signal: Int32, at bytes: Int) throws -> Outcome {
        let child = try Child(["import", cache, scratch("in"), "--source", "s", "--json"])
        while journalBytes < bytes, !child.hasEnded(within: 1) {}
        child.send(signal)
        return try child.wait()
    }

    private func checkAndComplete() throws {
        let verified = try tilegc("verify", cache, "--json")
        #expect(verified.status == 0, "\(verified.text)")
        let stored = try tilegc("ls", cache, "--json").jsonLines()
        #expect(stored.count < pyramid.tiles.count, "the import was stopped")
        for entry in stored.prefix(20) {
            let key = try #require(entry["key"] as? String)
            #expect(try succeed("cat", cache, key).output == pyramid.tiles["\(key.dropFirst(2)).png"])
        }
        let report = try succeed("import", cache, scratch("in"), "--source", "s", "--json").json()
        #expect(report["tiles"] as? Int == pyramid.tiles.count)
        try succeed("verify", cache, "--repair")
        try succeed("export", cache, scratch("out"), "--source", "s")
        #expect(try files(in: scratch("out")) == pyramid.tiles)
    }

    @Test(arguments: [0, 1, 20_000, 100_000])
    func aKilledImportIsCompletedByTheNext(at bytes: Int) throws {
        let outcome = try interrupt(SIGKILL, at: bytes)
        #expect(outcome.signal == SIGKILL)
        if bytes <= 1 {
            // Killed while the cache was made or before: either way the next import makes one.
            try succeed("import", cache, scratch("in"), "--source", "s")
            try succeed("verify", cache)
        } else {
            try checkAndComplete()
        }
    }

    @Test(arguments: [SIGINT, SIGTERM])
    func anInterruptedImportReportsWhatItDid(_ signal: Int32) throws {
        let outcome = try interrupt(signal, at: 20_000)
        #expect(outcome.status == 130)
        #expect(outcome.messages.contains("interrupted"))
        let tiles = try #require(try outcome.json()["tiles"] as? Int)
        #expect(try tilegc("ls", cache).lines.count == tiles)
        try checkAndComplete()
    }

    @Test func aKilledExportIsCompletedByTheNext() throws {
        try succeed("import", cache, scratch("in"), "--source", "s")
        let child = try Child(["export", cache, scratch("out"), "--source", "s"])
        while !FileManager.default.fileExists(atPath: scratch("out/3")), !child.hasEnded(within: 1) {}
        child.send(SIGKILL)
        #expect(try child.wait().signal == SIGKILL)
        // What is there is whole; a leftover is one hidden file.
        for (name, data) in try files(in: scratch("out")) where !name.hasPrefix(".tilegc-") {
            #expect(pyramid.tiles[name] == data)
        }
        try succeed("export", cache, scratch("out"), "--source", "s")
        let found = try files(in: scratch("out")).filter { !$0.key.hasPrefix(".tilegc-") }
        #expect(found == pyramid.tiles)
    }
}
