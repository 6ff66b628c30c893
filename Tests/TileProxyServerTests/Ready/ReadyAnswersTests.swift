import CacheEngine
import Foundation
import HTTPCaching
import NIOCore
import Testing
import TileStore
import TileStoreTesting

@testable import HTTPListener
@testable import TileProxyServer

/// The table of answers that are ready, without sockets.
@Suite(.timeLimit(.minutes(60)))
struct ReadyAnswersTests {
    /// A store in memory, a table over it, and requests as the server reads them.
    private final class Bench {
        let clock = ManualClock()
        let store: TileStore
        let time: LoopTime
        let ready: ReadyAnswers
        private let via = Via(receivedBy: "v")

        init(bytes: Int = ReadyAnswers.budget) throws {
            let clock = clock
            let files = SimulatedFileSystem(SimulatedDisk(clock: clock))
            store = try TileStore(environment: clock.environment(files), configuration: StoreConfiguration())
            time = LoopTime { HTTPDate(seconds: clock.now.seconds) }
            ready = ReadyAnswers(store, time: time, bytes: bytes)
        }

        func put(_ key: String, _ text: String = "hello", headers: [ResponseFields.Header] = []) throws -> Candidate {
            let key = try TileKey(key)
            let metadata = TileMetadata(
                response: ResponseFields(status: 200, mediaType: "text/plain", headers: headers),
                etag: "\"\(text.prefix(99))\"",
                storedAt: clock.now, expires: clock.now.adding(seconds: 60))
            try store.put(Data(text.utf8), for: key, metadata: metadata)
            let tile = try #require(try store.open(key, wholeUpTo: .max))
            return Candidate(key: key, tile, nil)
        }

        func request(_ target: String, _ fields: String = "") throws -> RequestHead {
            var parser = RequestParser(limits: ServerLimits())
            var input = ByteBuffer(string: "GET \(target) HTTP/1.1\r\nHost: a\r\n\(fields)\r\n")
            return try #require(try parser.next(&input) { _ in true })
        }

        func keep(_ target: String, _ candidate: Candidate, _ fields: String = "") throws {
            ready.keep(candidate, for: try request(target, fields), via: via)
        }

        /// What is answered at once; the target's key is asked for where it is not known.
        func answer(_ target: String, _ fields: String = "", key: TileKey? = nil) throws -> String? {
            var buffer = ByteBuffer()
            let answering = Answering(time: time, keepAlive: true, isHTTP11: true)
            let answered = ready.answer(
                try request(target, fields), answering, via: Array("v".utf8), into: &buffer, key: { _ in key })
            #expect((answered == nil) == (buffer.readableBytes == 0))
            return answered.map { _ in String(buffer: buffer) }
        }
    }

    @Test
    func theTilesOfZoomEightHaveRoom() throws {
        let bench = try Bench(bytes: 16 << 20)
        let candidate = try bench.put("a:/b")
        for i in 0..<65_536 { try bench.keep("/tiles/8/\(i / 256)/\(i % 256).png", candidate) }
        #expect(bench.ready.contents.targets == 65_536 && bench.ready.contents.heads == 1)
        for i in stride(from: 0, to: 65_536, by: 97) {
            #expect(try bench.answer("/tiles/8/\(i / 256)/\(i % 256).png")?.hasSuffix("hello") == true)
        }
        #expect(try bench.answer("/tiles/8/256/0.png") == nil)
    }

    /// Where a table that was full was emptied by half, or as a whole, asking for a little more than fits cost nearly all.
    @Test
    func askingForMoreThanFitsCostsOnlyWhatDoesNotFit() throws {
        let bench = try Bench(bytes: 200_000)
        let candidate = try bench.put("a:/b")
        var random = SplitMix64(seed: 1)
        var fits = 0
        while bench.ready.contents.targets == fits {
            try bench.keep("/\(fits)", candidate)
            fits += 1
        }
        #expect(fits > 1000)
        for share in [110, 150, 200] {
            let asked = fits * share / 100
            var hits = 0
            for round in 0..<(12 * fits) {
                let target = "/\(random.below(asked))"
                if try bench.answer(target) != nil {
                    if round >= 4 * fits { hits += 1 }
                } else {
                    try bench.keep(target, candidate)
                }
            }
            let ratio = Double(hits) / Double(8 * fits)
            #expect(ratio > 0.9 * 100 / Double(share), "of \(share) % of what fits, \(ratio) were ready")
            #expect(bench.ready.contents.bytes <= 200_000)
        }
    }

    /// It would be made for nothing at each request: a body that long is never sent from here.
    @Test
    func noHeadIsMadeForABodyThatIsTooLong() throws {
        let bench = try Bench()
        let (largest, larger) = (
            String(repeating: "a", count: ReadyAnswers.largestBody),
            String(repeating: "a", count: ReadyAnswers.largestBody + 1)
        )
        let small = try bench.put("a:/b", largest)
        #expect(try bench.answer("/b", key: small.key)?.hasSuffix("aa") == true)
        #expect(bench.ready.headsMade == 1)
        let large = try bench.put("a:/c", larger, headers: [.init(name: "X-Other", value: "fields")])
        for _ in 0..<3 { #expect(try bench.answer("/c", key: large.key) == nil) }
        #expect(bench.ready.headsMade == 1)
    }

    @Test
    func headsThatShareNothingTakeNoMoreRoomThanIsGiven() throws {
        let bench = try Bench(bytes: 100_000)
        for i in 0..<300 {
            let headers = [ResponseFields.Header(name: "X-Id", value: "\(i)" + String(repeating: "x", count: 1500))]
            try bench.keep("/\(i)", try bench.put("a:/\(i)", headers: headers))
            #expect(bench.ready.contents.bytes <= 100_000)
        }
        let (targets, heads, _) = bench.ready.contents
        #expect((20...60).contains(targets) && heads == targets)
        // What was kept last is dropped as seldom as anything else.
        #expect(try (0..<300).count { try bench.answer("/\($0)") != nil } == targets)
    }

    @Test
    func aHeadIsForgottenWithItsLastTarget() throws {
        let bench = try Bench()
        let first = try bench.put("a:/b")
        for target in ["/1", "/2"] { try bench.keep(target, first) }
        let second = try bench.put("a:/b", headers: [.init(name: "X-Id", value: "1")])
        // The store has changed: neither is answered by the former head.
        #expect(second.entry.metadata.response != first.entry.metadata.response)
        for (target, heads) in [("/1", 2), ("/2", 1)] {
            #expect(try bench.answer(target)?.contains("X-Id: 1\r\n") == true)
            #expect(bench.ready.contents.heads == heads && bench.ready.contents.targets == 2)
        }
    }

    @Test
    func aTargetThatIsNotKnownIsAnsweredByItsKey() throws {
        let bench = try Bench()
        let candidate = try bench.put("a:/b")
        #expect(try bench.answer("/b") == nil)
        #expect(try bench.answer("/b", key: TileKey("a:/c")) == nil && bench.ready.contents.targets == 0)
        let answer = try #require(try bench.answer("/b", key: candidate.key))
        #expect(try bench.ready.contents.targets == 1 && bench.answer("/b") == answer)
        bench.clock.advance(seconds: 60)
        #expect(try bench.answer("/b") == nil, "stale")
    }

    @Test
    func theNewestForATargetCounts() throws {
        let bench = try Bench()
        for text in ["one", "two", "three"] {
            try bench.keep("/a", try bench.put("a:/\(text)", text))
            #expect(try bench.answer("/a")?.hasSuffix(text) == true && bench.ready.contents.targets == 1)
        }
    }

    @Test
    func headsAndTargetsThatAreTooLongAreNotKept() throws {
        let bench = try Bench()
        let candidate = try bench.put("a:/b")
        try bench.keep("/" + String(repeating: "a", count: ReadyAnswers.longestTarget), candidate)
        let long = [ResponseFields.Header(name: "X-Id", value: String(repeating: "x", count: ReadyHead.longest))]
        try bench.keep("/a", try bench.put("a:/c", headers: long))
        #expect(bench.ready.contents == (0, 0, 0))
    }

    @Test
    func aTableWithoutRoomAnswersNothing() throws {
        let bench = try Bench(bytes: 0)
        try bench.keep("/a", try bench.put("a:/b"))
        #expect(try bench.answer("/a") == nil && bench.ready.contents.targets == 0)
    }

    @Test
    func aTagIsComparedOnlyWhereItCanBeReadInOneWay() throws {
        let bench = try Bench()
        for (text, isReady) in [("v1", true), ("a b", false), ("a\"b", false), ("\u{E9}", false)] {
            try bench.keep("/a", try bench.put("a:/b", text))
            #expect(try (bench.answer("/a", "If-None-Match: \"\(text)\"\r\n") != nil) == isReady, "\(text)")
        }
        try bench.keep("/a", try bench.put("a:/b", "v1"))
        for tag in ["\"v1\"", "W/\"v1\""] {
            let answer = try #require(try bench.answer("/a", "If-None-Match: \(tag)\r\n"))
            #expect(answer.hasPrefix("HTTP/1.1 304 Not Modified\r\n") && answer.hasSuffix("ttl=60\r\n\r\n"))
            #expect(answer.contains("\r\nETag: \"v1\"\r\n") && !answer.contains("Content-"))
        }
        for tag in ["\"v2\"", "W/\"v2\"", "\"v1, v2\"", "\"\"", "\"V1\""] {
            #expect(try bench.answer("/a", "If-None-Match: \(tag)\r\n")?.hasSuffix("\r\n\r\nv1") == true, "\(tag)")
        }
        for value in ["*", "v1", "\"v1\", \"v2\"", "w/\"v1\"", "\"v1", "\"", "W/", "\"v1\"\r\nIf-None-Match: \"v1\""] {
            #expect(try bench.answer("/a", "If-None-Match: \(value)\r\n") == nil, "\(value)")
        }
    }

    @Test
    func datesAndNumbersAreWrittenAsElsewhere() {
        func text(_ body: (inout HeadWriter) -> Void) -> String {
            var room = [UInt8](repeating: 0, count: 64)
            let count = room.withUnsafeMutableBytes { bytes -> Int in
                var writer = HeadWriter(bytes)
                body(&writer)
                return writer.count
            }
            return String(decoding: room[..<count], as: UTF8.self)
        }
        var random = SplitMix64(seed: 3)
        let edges: [Int64] = [0, 1, 86_399, 86_400, 951_782_400, 951_868_800, 4_294_967_295, 253_402_300_799, -1]
        for seconds in edges + (0..<20_000).map({ _ in Int64(random.below(4_294_967_296)) }) {
            let date = HTTPDate(seconds: seconds)
            #expect(text { $0.write(date) } == date.description)
        }
        for number in [0, 9, 10, 99, 100, 12_345, .max] { #expect(text { $0.write(number) } == "\(number)") }
        // What does not fit is left out, and never written elsewhere.
        var small = [UInt8](repeating: 7, count: 4)
        small.withUnsafeMutableBytes { bytes in
            var writer = HeadWriter(UnsafeMutableRawBufferPointer(rebasing: bytes[..<2]))
            writer.write(123)
            writer.write("abc")
            writer.write(12)
        }
        #expect(small == [49, 50, 7, 7])
    }
}
