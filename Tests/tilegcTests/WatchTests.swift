import Foundation
import Testing
import TileStore
import TileStoreTesting

@testable import tilegc

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct WatchTests {
    private let scratch: Scratch
    private let cache: String

    init() throws {
        scratch = try Scratch()
        cache = scratch("cache")
        try Sample.make(at: cache)
    }

    /// What a loop writes that looks so often.
    private final class Written {
        var texts: [String] = []
        var waits: [Int] = []
        var text: String { texts.joined() }
    }

    private func watched() throws -> WatchedCache {
        var argument = CacheArgument()
        argument.cache = cache
        return try WatchedCache(argument)
    }

    /// Runs a loop without time: before each look but the first, something is done.
    private func run(
        _ form: WatchLoop.Form, width: Int = 100, height: Int = 24, readers: Int = .max, lookTakes: Int = 0,
        doing steps: [() throws -> Void]
    ) throws -> Written {
        let written = Written()
        let watched = try watched()
        var left = steps[...]
        var failure: (any Error)?
        var loop = WatchLoop(
            cache: cache, form: form, interval: 2000, look: watched.look,
            screen: { Progress.Screen(width: width, height: height, isDumb: false) },
            write: { text in
                written.texts.append(text)
                return written.texts.count < readers
            },
            wait: { milliseconds in
                written.waits.append(milliseconds)
                guard let step = left.popFirst() else { return false }
                do { try step() } catch { failure = error }
                return failure == nil
            }, clock: { written.waits.reduce(0) { $0 + $1 + lookTakes } })
        try loop.run()
        if let failure { throw failure }
        return written
    }

    private func put(_ count: Int) throws {
        let store = try TileStore(at: cache)
        for x in 0..<count {
            try store.put(
                Data("new \(x)".utf8), for: TileKey(source: "new", z: 9, x: x, y: 0), metadata: Sample.metadata())
        }
        try store.close()
    }

    private func fields(_ line: Substring) throws -> [String: Any] {
        try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
    }

    @Test func eachLineOfJSONIsAsStatsAndSaysWhatHappened() throws {
        let written = try run(
            .json,
            doing: [
                { try put(3) }, { try succeed("compact", cache) }, {},
                { try succeed("rm", cache, "--source", "new") },
            ])
        let lines = try written.text.split(separator: "\n").map { try fields($0) }
        #expect(lines.count == 5 && written.waits.allSatisfy { $0 == 2000 })
        let stats = try succeed("stats", cache, "--json").json()
        for line in lines {
            for name in stats.keys { #expect(line[name] != nil, "\(name)") }
            #expect(line["time"] is String)
            let (fresh, stale) = (try #require(line["fresh"] as? Int), try #require(line["stale"] as? Int))
            #expect(line["entries"] as? Int == fresh + stale)
        }
        #expect(lines.map { $0["puts"] as? Int } == [0, 3, 0, 0, 0])
        #expect(lines.map { $0["evictedBlobs"] as? Int } == [0, 0, 0, 0, 3])
        #expect(lines.map { $0["events"] as? [String] } == [[], [], ["compacted"], [], []])
        #expect(lines.last?["entries"] as? Int == stats["entries"] as? Int)
    }

    @Test func linesForPeopleHaveNoControlCharacters() throws {
        let written = try run(.lines, doing: [{ try put(2) }, { try succeed("compact", cache) }])
        let lines = written.text.split(separator: "\n", omittingEmptySubsequences: false)
        #expect(lines.count == 4 && lines.last == "")
        #expect(written.text.unicodeScalars.allSatisfy { $0 == "\n" || $0.value >= 32 })
        #expect(lines[1].contains("puts 2") && lines[2].contains("the manifest was compacted"))
    }

    @Test(arguments: [1, 2, 20, 79, 300], [2, 5, 50])
    func aScreenIsDrawnWithinItsTerminal(width: Int, height: Int) throws {
        let written = try run(.screen, width: width, height: height, doing: [{ try put(2) }, {}])
        #expect(written.texts.first == "\u{1B}[?25l" && written.texts.last == "\u{1B}[?25h")
        let drawings = written.texts.dropFirst().dropLast()
        #expect(drawings.count == 3)
        var before = 0
        for drawing in drawings {
            let rows = drawing.components(separatedBy: "\u{1B}[K\r\n")
            #expect(rows.count - 1 <= max(1, height - 1))
            #expect(rows.last == "\u{1B}[J")
            #expect(rows[0].hasPrefix(before == 0 ? "\r" : "\u{1B}[\(before)A\r"))
            for row in rows.dropFirst().dropLast() {
                #expect(row.count <= width - 1 && row.unicodeScalars.allSatisfy { $0.value >= 32 }, "\(row)")
            }
            before = rows.count - 1
        }
    }

    @Test func aFailureGivesTheCursorBack() throws {
        let written = Written()
        let watched = try watched()
        var loop = WatchLoop(
            cache: cache, form: .screen, interval: 100, look: watched.look,
            screen: { Progress.Screen(width: 80, isDumb: false) },
            write: { text in
                written.texts.append(text)
                return true
            },
            wait: { _ in
                removeFolder(cache)
                return true
            })
        let failure = #expect(throws: Failure.self) { try loop.run() }
        #expect(failure?.status == .noInput)
        #expect(failure?.message.hasSuffix("was removed while it was watched") == true)
        #expect(written.texts.last == "\u{1B}[?25h")
    }

    @Test func nobodyWhoReadsOnEndsIt() throws {
        #expect(try run(.lines, readers: 2, doing: [{}, {}, {}, {}]).texts.count == 2)
    }

    @Test func aCacheThatTakesTheFoldersPlaceIsWatchedInstead() throws {
        let written = try run(
            .json,
            doing: [
                {
                    removeFolder(cache)
                    try put(2)
                }, { try put(4) },
                {
                    // Moved away, and back by a rename: the folder that was watched still has its name in a handle.
                    try FileManager.default.moveItem(atPath: cache, toPath: scratch("old"))
                    try put(1)
                }, {},
            ])
        let lines = try written.text.split(separator: "\n").map { try fields($0) }
        #expect(lines.map { $0["events"] as? [String] } == [[], ["replaced"], [], ["replaced"], []])
        #expect(lines.dropFirst().map { $0["entries"] as? Int } == [2, 4, 1, 1])
        #expect(lines.map { $0["puts"] as? Int } == [0, nil, 4, nil, 0])
    }

    @Test(arguments: ["0.1s", "100ms", "2", "2s", "1m", "0.5m", "1h", "3600s"])
    func intervalsThatAreTaken(_ text: String) throws {
        #expect((100...3_600_000).contains(try ArgumentValues.interval(text)))
    }

    @Test(arguments: [
        "", "s", "0", "99ms", "0.09s", "-1s", "2h", "61m", "1d", "nan", "1e3s", "999999999999999h", "1.0.0s",
    ])
    func intervalsThatAreRefused(_ text: String) throws {
        #expect(throws: (any Error).self) { try ArgumentValues.interval(text) }
    }

    // MARK: The program

    @Test(arguments: [SIGINT, SIGTERM])
    func theProgramCountsWhatAnImportPutsAndEndsAtASignal(_ signal: Int32) throws {
        let pyramid = Pyramid(seed: 3, zooms: 0...4)
        try pyramid.write(to: scratch("in"))
        let path = scratch("lines")
        let output = open(path, O_WRONLY | O_CREAT, 0o600)
        defer { close(output) }
        let child = try Child(["watch", cache, "--interval", "0.1s", "--json"], output: output)
        func lines() throws -> [[String: Any]] {
            let text = String(decoding: FileManager.default.contents(atPath: path) ?? Data(), as: UTF8.self)
            // The last one may be half written.
            guard let end = text.lastIndex(of: "\n") else { return [] }
            return try text[..<end].split(separator: "\n").map { try fields($0) }
        }
        while try lines().isEmpty, !child.hasEnded(within: 1) {}
        try succeed("import", cache, scratch("in"), "--source", "s")
        func puts() throws -> Int { try lines().reduce(0) { $0 + ($1["puts"] as? Int ?? 0) } }
        while try puts() < pyramid.tiles.count, !child.hasEnded(within: 1) {}
        // On a busy machine a walk takes long, and the next one comes after twenty times that.
        let entries = pyramid.tiles.count + 19
        while try lines().last?["entries"] as? Int != entries, !child.hasEnded(within: 1) {}
        child.send(signal)
        #expect(try child.wait().status == 0)
        #expect(try puts() == pyramid.tiles.count)
        #expect(try lines().last?["entries"] as? Int == entries)
    }

    /// It slept in `write`, and only the second signal ended it.
    @Test func whereNobodyReadsASignalEndsItToo() throws {
        var ends: [Int32] = [0, 0]
        #expect(pipe(&ends) == 0)
        defer { for end in ends { close(end) } }
        let child = try Child(["watch", cache, "--interval", "0.1s", "--json"], output: ends[1])
        // It has begun to watch.
        var byte: UInt8 = 0
        #expect(read(ends[0], &byte, 1) == 1)
        let filler = open("/proc/self/fd/\(ends[1])", O_WRONLY | O_NONBLOCK)
        if filler >= 0 {
            let bytes = [UInt8](repeating: 10, count: 4096)
            while write(filler, bytes, bytes.count) > 0 {}
            close(filler)
        }
        _ = child.hasEnded(within: 1000)
        child.send(SIGTERM)
        #expect(try child.wait().status == 0)
    }

    /// Puts were divided by the interval, however long it was since the last look.
    @Test func aRateIsThatOfTheTimeThatHasPassed() throws {
        let text = try run(.screen, lookTakes: 8000, doing: [{ try put(20) }]).text
        #expect(text.contains("2.0/s, 20 since the start"), "\(text)")
    }

    @Test func aRowOfWideCharactersIsCutToTheTerminal() {
        let screen = Progress.Screen(width: 11, isDumb: false)
        #expect(screen.line("地図のキャッシュ") == "地図のキャ" && screen.line("a地図のキャッシュ") == "a地図のキ")
        #expect(screen.line("0123456789abc") == "0123456789")
    }

    @Test func inATerminalItIsRedrawnAndTheCursorComesBack() throws {
        let (terminal, screen) = try pseudoTerminal()
        defer {
            close(screen)
            close(terminal)
        }
        var size = winsize(ws_row: 8, ws_col: 30, ws_xpixel: 0, ws_ypixel: 0)
        try #require(ioctl(screen, UInt(TIOCSWINSZ), &size) == 0)
        let child = try Child(
            ["TERM=xterm", Child.tilegc, "watch", cache, "--interval", "0.1s"], of: "/usr/bin/env", output: screen)
        var shown = ""
        func read(for milliseconds: Int32) -> Bool {
            var poller = pollfd(fd: terminal, events: Int16(POLLIN), revents: 0)
            guard poll(&poller, 1, milliseconds) == 1 else { return false }
            var bytes = [UInt8](repeating: 0, count: 4096)
            let count = bytes.withUnsafeMutableBytes { platformRead(terminal, $0) }
            shown += String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
            return count > 0
        }
        while shown.components(separatedBy: "\u{1B}[J").count < 4, !child.hasEnded(within: 0) { _ = read(for: 1000) }
        child.send(SIGINT)
        #expect(try child.wait().status == 0)
        while read(for: 0) {}
        #expect(shown.hasPrefix("\u{1B}[?25l") && shown.hasSuffix("\u{1B}[?25h"))
        let rows = shown.components(separatedBy: "\u{1B}[K")
        #expect(rows.count > 20)
        #expect(shown.contains("\u{1B}[7A\r"), "seven rows of eight are drawn over")
    }

    @Test func ofWhatIsNoCacheItSaysSo() throws {
        #expect(try tilegc("watch", scratch("nothing")).status == 66)
        #expect(try tilegc("watch", cache, "--interval", "0.01s").status == 64)
    }
}

/// A terminal's two ends: where a person would sit, and what a program has as its output.
private func pseudoTerminal() throws -> (terminal: Int32, screen: Int32) {
    #if os(Linux)
    // The Glibc module has no `posix_openpt`; these are TIOCSPTLCK and TIOCGPTN.
    let terminal = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    var (isLocked, number): (Int32, UInt32) = (0, 0)
    try #require(terminal >= 0 && ioctl(terminal, 0x4004_5431, &isLocked) == 0)
    try #require(ioctl(terminal, 0x8004_5430, &number) == 0)
    let name = "/dev/pts/\(number)"
    #else
    let terminal = posix_openpt(O_RDWR | O_NOCTTY)
    try #require(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0)
    let name = try #require(ptsname(terminal).map { String(cString: $0) })
    #endif
    let screen = open(name, O_RDWR | O_NOCTTY)
    try #require(screen >= 0)
    return (terminal, screen)
}

private func platformRead(_ file: Int32, _ bytes: UnsafeMutableRawBufferPointer) -> Int {
    read(file, bytes.baseAddress, bytes.count)
}
