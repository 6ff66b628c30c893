import ObjectStorage
import Testing
import TileStore
import TileStoreTesting

@testable import SharedTier

@Suite struct SharedEntryTests {
    private let now = Timestamp(seconds: 1_800_000_000)
    private let key: TileKey

    init() throws { key = try TileKey("osm/3/1/2.png") }

    private func digest(_ text: String) -> BlobDigest { Array(text.utf8).withUnsafeBytes { BlobDigest(hashing: $0) } }

    private func entry(_ random: inout SplitMix64) -> SharedEntry {
        func text(_ choices: [String?]) -> String? { random.pick(choices) }
        let headers: [ResponseFields.Header] = [
            .init(name: "Cache-Control", value: "max-age=60, stale-if-error=5"), .init(name: "Expires", value: ""),
            .init(name: "X", value: "a:b: ü\u{1} %"),
        ]
        let isAbsent = random.oneIn(4)
        let response = ResponseFields(
            status: random.pick(isAbsent ? [204, 404, 410] : [200, 203]),
            mediaType: text([nil, "image/png", "a/ü; x=\"%\""]),
            contentEncoding: text([nil, "gzip"]), staleWhileRevalidate: random.below(3) * 60,
            staleIfError: random.below(2) * 86400, mustRevalidate: random.oneIn(2), noCache: random.oneIn(2),
            headers: Array(headers.prefix(random.below(4))))
        let asked = now.adding(seconds: -Int64(random.below(100_000)))
        let metadata = TileMetadata(
            response: response, etag: text([nil, "\"a\"", "W/\"ü%\""]),
            lastModified: random.oneIn(2) ? nil : Timestamp(seconds: 1), storedAt: asked,
            date: random.oneIn(2) ? nil : asked.adding(seconds: -3), initialAge: random.below(2) * 77,
            expires: asked.adding(seconds: Int64(random.below(1_000_000))))
        return SharedEntry(key: key, metadata: metadata, blob: isAbsent ? nil : digest("tile"))
    }

    /// What one node writes, another one reads, whatever their clocks say: all times are this many seconds apart.
    @Test(arguments: Seeds.list(300))
    func anotherNodeReadsTheSame(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let mine = entry(&random)
        let (writer, reader) = (Int64(random.below(200)) - 100, Int64(random.below(200)) - 100)
        let object = try #require(mine.objectMetadata(ClockOffset(seconds: writer)))
        let read = try #require(
            SharedEntry(object, of: key, ClockOffset(seconds: reader), now: now.adding(seconds: writer - reader)))
        #expect(read.key == key && read.blob == mine.blob && read.metadata.response == mine.metadata.response)
        #expect(read.metadata.etag == mine.metadata.etag && read.metadata.date == mine.metadata.date)
        #expect(read.metadata.lastModified == mine.metadata.lastModified)
        #expect(read.metadata.initialAge == mine.metadata.initialAge)
        let apart = read.metadata.storedAt.seconds - mine.metadata.storedAt.seconds
        #expect(apart == writer - reader)
        #expect(read.metadata.expires.seconds - mine.metadata.expires.seconds == apart)
    }

    /// Objects that are damaged or another's are misses, and never a trap.
    @Test(arguments: Seeds.list(300))
    func whatIsDamagedIsAMiss(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let mine = entry(&random)
        let here = ClockOffset(seconds: 0)
        var values = try #require(mine.objectMetadata(here)).values
        let name = try #require(values.keys.sorted().randomElement(using: &random))
        switch random.below(3) {
        case 0: values[name] = nil
        case 1:
            values[name] = Array(random.pick(["-1", "x", "99999999999999999999", "00", "4294967295", "\u{0}"]).utf8)
        default: values[name] = [0xFF, 0xFE]
        }
        guard let read = SharedEntry(try S3Metadata(values), of: key, here, now: now) else { return }
        // What is left says less, or is any text; it is about this tile, and no time is out of range.
        #expect(read.key == key && (200...599).contains(read.metadata.response.status))
        #expect(read.metadata.storedAt.seconds > 0 && read.metadata.storedAt <= now.adding(seconds: 60))
        #expect(read.metadata.expires >= read.metadata.storedAt && read.metadata.initialAge >= 0)
    }

    @Test func anothersTileIsAMiss() throws {
        var random = SplitMix64(seed: 1)
        let object = try #require(entry(&random).objectMetadata(ClockOffset(seconds: 0)))
        let other = try TileKey("osm/3/2/1.png")
        #expect(SharedEntry(object, of: other, ClockOffset(seconds: 0), now: now) == nil)
        #expect(SharedEntry(.none, of: key, ClockOffset(seconds: 0), now: now) == nil)
    }

    @Test func whatWasAskedForInTheFutureIsAMiss() throws {
        var random = SplitMix64(seed: 2)
        let mine = entry(&random)
        let object = try #require(mine.objectMetadata(ClockOffset(seconds: 0)))
        let asked = mine.metadata.storedAt
        let here = ClockOffset(seconds: 0)
        #expect(SharedEntry(object, of: key, here, now: asked.adding(seconds: -5)) != nil)
        #expect(SharedEntry(object, of: key, here, now: asked.adding(seconds: -6)) == nil)
        for offset in [Int64.min, .max] {
            #expect(SharedEntry(object, of: key, ClockOffset(seconds: offset), now: now) == nil)
        }
    }

    @Test func whatIsTooLongForAServerIsNotShared() {
        func object(_ response: ResponseFields, etag: String? = nil) -> S3Metadata? {
            let metadata = TileMetadata(response: response, etag: etag, storedAt: now, expires: now)
            return SharedEntry(key: key, metadata: metadata, blob: nil).objectMetadata(ClockOffset(seconds: 0))
        }
        #expect(object(ResponseFields()) != nil)
        #expect(object(ResponseFields(mediaType: String(repeating: "a", count: 257))) == nil)
        #expect(object(ResponseFields(), etag: "\"" + String(repeating: "ü", count: 100) + "\"") == nil)
        let many = (0..<9).map { ResponseFields.Header(name: "n\($0)", value: "v") }
        #expect(object(ResponseFields(headers: Array(many.prefix(8)))) != nil)
        #expect(object(ResponseFields(headers: many)) == nil)
    }
}
