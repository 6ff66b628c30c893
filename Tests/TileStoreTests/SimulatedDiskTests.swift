import Foundation
import Testing
import TileStore
import TileStoreTesting

/// The tool that the other tests stand on.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct SimulatedDiskTests {
    private func append(_ files: SimulatedFileSystem, _ path: String, _ bytes: [UInt8]) throws {
        let file = try files.open(path, .appendCreating)
        defer { files.close(file) }
        try bytes.withUnsafeBytes { try files.writeAll(file, $0) }
    }

    private func text(_ disk: SimulatedDisk, _ path: String) -> String? {
        disk.contents(path).map { String(decoding: $0, as: UTF8.self) }
    }

    @Test("Files are made, renamed and removed; an unlinked file stays readable while it is open")
    func files() throws {
        let disk = SimulatedDisk(clock: ManualClock())
        let files = SimulatedFileSystem(disk)
        #expect(try files.makeFolder("a"))
        #expect(try !files.makeFolder("a"))
        try append(files, "a/x", Array("hello".utf8))
        let open = try files.open("a/x", .read)
        try files.rename("a/x", to: "y")
        #expect(text(disk, "y") == "hello")
        #expect(try files.unlink("y"))
        #expect(try !files.unlink("y"))
        var buffer = [UInt8](repeating: 0, count: 9)
        let count = try buffer.withUnsafeMutableBytes { try files.read(open, into: $0, at: 1) }
        #expect(Array(buffer[..<count]) == Array("ello".utf8))
        #expect(try files.status(of: open).links == 0)
        #expect(disk.used == 5)
        files.close(open)
        #expect(disk.used == 0)
        #expect(try files.list("a") == [])
        #expect(try files.list("b") == nil)
        #expect(throws: FileError.self) { try files.open("b/c", .createNew) }
    }

    @Test("Locks exclude other processes until they are given up or the process dies")
    func locks() throws {
        let disk = SimulatedDisk(clock: ManualClock())
        let (one, two) = (SimulatedFileSystem(disk), SimulatedFileSystem(disk))
        let first = try one.open("lock", .appendCreating)
        let second = try two.open("lock", .append)
        #expect(try one.tryLock(first))
        #expect(try !two.tryLock(second))
        one.kill()
        #expect(try two.tryLock(second))
    }

    @Test("A full disk takes what fits and then says so")
    func capacity() throws {
        let disk = SimulatedDisk(clock: ManualClock())
        disk.capacity = 10
        let files = SimulatedFileSystem(disk)
        try append(files, "a", [1, 2, 3, 4])
        let error = #expect(throws: FileError.self) { try append(files, "b", [UInt8](repeating: 0, count: 8)) }
        #expect(error?.number == ENOSPC)
        #expect(disk.contents("b")?.count == 6)
        _ = try files.unlink("a")
        try append(files, "b", [1, 2, 3, 4])
    }

    @Test("A power cut keeps what was synced, and of the rest what the seed says")
    func powerCut() throws {
        var states: Set<String> = []
        for seed in 0..<200 as Range<UInt64> {
            var random = SplitMix64(seed: seed)
            let disk = SimulatedDisk(clock: ManualClock(), recordsChanges: true)
            let files = SimulatedFileSystem(disk)
            _ = try files.makeFolder("d")
            try append(files, "d/kept", Array("old".utf8))
            let file = try files.open("d/kept", .append)
            try files.sync(file)
            try files.syncFolder("d")
            try files.syncFolder("")
            try append(files, "d/kept", Array("new".utf8))
            try append(files, "d/fresh", Array("abc".utf8))
            disk.powerCut(using: &random)
            #expect(disk.contents("d/kept")?.starts(with: "old".utf8) == true)
            #expect(throws: FileError.self) { try files.status(of: file) }
            states.insert("\(text(disk, "d/kept") ?? "") \(text(disk, "d/fresh") ?? "-")")
        }
        #expect(states.contains("oldnew abc") && states.contains("old -") && states.count > 10)
    }

    @Test("A killed process does nothing more, and its torn write is half there")
    func crash() throws {
        let disk = SimulatedDisk(clock: ManualClock())
        let files = SimulatedFileSystem(disk)
        files.crash(at: 1, torn: true)
        #expect(throws: FileError.self) { try append(files, "a", [1, 2, 3, 4]) }
        #expect(throws: FileError.self) { try append(files, "b", [1]) }
        #expect(disk.contents("a") == [1, 2])
        #expect(disk.contents("b") == nil)
    }

    @Test("The real file system answers as the simulated one does")
    func likeTheRealOne() throws {
        let folder = NSTemporaryDirectory() + "simulated-disk-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: folder) }
        let systems: [any FileSystem] = [
            DiskFileSystem(location: folder), SimulatedFileSystem(SimulatedDisk(clock: ManualClock())),
        ]
        let logs = systems.map { files in
            var log: [String] = []
            func note(_ name: String, _ body: () throws -> Any?) {
                do { log.append("\(name): \(try body().map { "\($0)" } ?? "nil")") } catch {
                    log.append("\(name): error \((error as? FileError)?.number ?? -1)")
                }
            }
            func bytes(_ body: (UnsafeRawBufferPointer) throws -> Void) rethrows {
                try [UInt8](repeating: 65, count: 10).withUnsafeBytes { try body($0) }
            }
            func readFile(_ path: String, _ limit: Int) throws -> Int? {
                var buffer = [UInt8](repeating: 0, count: limit)
                return try path.withCString { path in
                    try buffer.withUnsafeMutableBytes { try files.readFile(path, into: $0) }
                }
            }
            note("read absent") { try readFile("x", 5) }
            note("read in absent folder") { try readFile("n/x", 5) }
            note("make") { try files.makeFolder("a") }
            note("make again") { try files.makeFolder("a") }
            note("make below absent") { try files.makeFolder("n/x") }
            note("create") { try bytes { try files.createFile("a/x", $0, sync: true) } }
            note("create again") { try bytes { try files.createFile("a/x", $0, sync: false) } }
            note("create below absent") { try bytes { try files.createFile("n/x", $0, sync: false) } }
            note("read") { try readFile("a/x", 20) }
            note("read some") { try readFile("a/x", 4) }
            note("read folder") { try readFile("a", 4) }
            note("read below a file") { try readFile("a/x/y", 4) }
            note("status") { try files.status(at: "a/x").map { "\($0.kind) \($0.size) \($0.links)" } }
            note("status absent") { try files.status(at: "a/y") }
            note("status below a file") { try files.status(at: "a/x/y") }
            note("open absent") { try files.open("y", .read) }
            note("open absent to append") { try files.open("y", .append) }
            note("open there as new") { try files.open("a/x", .createNew) }
            note("open a folder to append") { try files.open("a", .append) }
            note("remove full folder") { try files.removeFolder("a") }
            note("unlink a folder") { try files.unlink("a") }
            note("unlink absent") { try files.unlink("q") }
            note("unlink below absent") { try files.unlink("n/q") }
            note("rename absent") { try files.rename("q", to: "r") }
            note("rename to absent folder") { try files.rename("a/x", to: "n/x") }
            note("make another") { try files.makeFolder("c") }
            note("rename onto a folder") { try files.rename("a/x", to: "c") }
            note("rename") { try files.rename("a/x", to: "b") }
            note("list") { try files.list("a") }
            note("list root") { try files.list("").map { $0.sorted() } }
            note("list absent") { try files.list("n") }
            note("list a file") { try files.list("b") }
            note("sync absent folder") { try files.syncFolder("n") }
            note("remove folder") { try files.removeFolder("a") }
            note("remove absent folder") { try files.removeFolder("a") }
            note("remove a file as a folder") { try files.removeFolder("b") }
            note("truncate") {
                let file = try files.open("b", .append)
                defer { files.close(file) }
                try files.truncate(file, to: 3)
                try bytes { try files.writeAll(file, $0) }
                return try files.status(of: file).size
            }
            return log
        }
        for (real, simulated) in zip(logs[0], logs[1]) { #expect(real == simulated) }
    }
}
