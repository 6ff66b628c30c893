#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A line of the manifest, taken apart.
///
/// The views point into the line.
enum ManifestLine {
    case put(PutLine)
    case set(UInt32, ResponseFields)
    case gone([String])
    case drop(BlobDigest)
    case uses([String], first: UInt64, at: UInt32)
    case expire([String], UInt32)
    case region(PinnedRegion)
    case regionGone(String)
    case limits(StoreLimits)
    case boot(String?)
    case blobRecency(BlobDigest, UInt64)
    case rotate(UInt64)
    case journalHeader(UInt64)
    case end(Int)
}

/// The whole state of a key, as its line has it.
struct PutLine {
    var key = KeyText()
    var blob: BlobDigest?
    var size: UInt32 = 0
    var set: UInt32 = 0
    var details = EntryDetails()
    var storedAt: UInt32 = 0
    var expires: UInt32 = 0
    var recency: UInt64 = 0
    var lastUsed: UInt32?
}

/// A key's text, taken apart as far as that takes no tables.
struct KeyText {
    private(set) var text = UnsafeRawBufferPointer(start: nil, count: 0)
    /// The name of the source, of at most 64 bytes that may be in one.
    private(set) var source = UnsafeRawBufferPointer(start: nil, count: 0)
    /// What follows, if it is a tile; else the whole text is to be looked at as a resource.
    private(set) var tile: ScannedTile?

    init() {}

    /// `nil` if the text is no key; if it is a resource, that is still to be seen.
    @inline(__always)
    init?(_ text: UnsafeRawBufferPointer) {
        var mark = 0
        while mark < text.count, isSourceByte(text[mark]) { mark &+= 1 }
        guard mark > 0, mark <= 64, mark < text.count else { return nil }
        self.text = text
        source = UnsafeRawBufferPointer(rebasing: text[..<mark])
        if text[mark] == 0x2F {
            guard let tile = ScannedTile(UnsafeRawBufferPointer(rebasing: text[(mark &+ 1)...])) else { return nil }
            self.tile = tile
        }
    }
}

/// Reads lines: by the layout in which this program writes them, else as any JSON.
struct LineReader: ~Copyable {
    // Room for unescaped entity tags and for keys out of the general reader; one line's at a time.
    private let scratch = UnsafeMutableRawBufferPointer.allocate(byteCount: 4096, alignment: 8)

    deinit { scratch.deallocate() }

    /// What a line must end with: `,"c":"xxxxxxxx"}`.
    static let tailLength = 16

    /// The line without its checksum, if that is right.
    ///
    /// `nil` means torn or damaged.
    @inline(__always)
    static func body(of line: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer? {
        let n = line.count - tailLength
        guard n > 0, line[n] == 0x2C, line[n + 1] == 0x22, line[n + 2] == 0x63, line[n + 3] == 0x22,
            line[n + 4] == 0x3A, line[n + 5] == 0x22, line[n + 14] == 0x22, line[n + 15] == 0x7D,
            let sum = checksum(line, at: n + 6)
        else { return nil }
        let body = UnsafeRawBufferPointer(rebasing: line[..<n])
        return LineChecksum.of(body) == sum ? body : nil
    }

    @inline(__always)
    static func checksum(_ line: UnsafeRawBufferPointer, at: Int) -> UInt32? {
        HexDigits.bytes(line.loadUnaligned(fromByteOffset: at, as: UInt64.self)).map { UInt32(bigEndian: $0) }
    }

    // MARK: Our own layout

    /// Takes a line apart whose checksum was right, if it is a key's state in our own layout.
    ///
    /// `body` is what is before the checksum member. What is taken apart points into the line, and where the tag has
    /// escapes, into this reader: it is good until the next line.
    @inline(__always)
    func readPut(_ body: UnsafeRawBufferPointer, _ put: inout PutLine) -> Bool {
        var scan = Scan(bytes: body)
        guard scan.take("{\"key\":\""), let text = scan.plainString(), let key = KeyText(text) else { return false }
        put.key = key
        if scan.take(",\"blob\":\"") {
            guard scan.at &+ 65 <= body.count,
                let digest = BlobDigest(hex: UnsafeRawBufferPointer(rebasing: body[scan.at..<(scan.at &+ 64)])),
                body[scan.at &+ 64] == 0x22
            else { return false }
            scan.at &+= 65
            guard scan.take(",\"size\":"), let size = scan.number(), size <= UInt32.max else { return false }
            put.blob = digest
            put.size = UInt32(truncatingIfNeeded: size)
        } else {
            put.blob = nil
            put.size = 0
        }
        guard scan.take(",\"set\":"), let set = scan.number(), set <= UInt32.max else { return false }
        put.set = UInt32(truncatingIfNeeded: set)
        put.details = EntryDetails()
        if scan.take(",\"etag\":\"") {
            guard let tag = scan.tag(into: scratch) else { return false }
            put.details.tag = tag
        }
        (put.storedAt, put.expires) = (0, 0)
        var used = Timestamp.absent
        guard scan.time(",\"mod\":", &put.details.lastModified), scan.time(",\"at\":", &put.storedAt),
            scan.time(",\"date\":", &put.details.date), scan.time(",\"age\":", &put.details.initialAge),
            scan.time(",\"exp\":", &put.expires), scan.take(",\"use\":"), let recency = scan.number(),
            scan.time(",\"used\":", &used), scan.at == body.count
        else { return false }
        put.recency = recency
        put.details.initialAge = min(put.details.initialAge, LineBuffer.longestAge)
        put.lastUsed = used == Timestamp.absent ? nil : used
        return true
    }

    /// What is done to the keys of a line.
    enum KeysChange: Equatable {
        case gone
        case expire(UInt32)
    }

    /// Takes a line apart whose checksum was right, if it takes keys away or makes them stale in our own layout.
    ///
    /// - Parameter keys: Gets the keys' texts, which point into the line.
    func readKeys(_ body: UnsafeRawBufferPointer, into keys: inout [UnsafeRawBufferPointer]) -> KeysChange? {
        var scan = Scan(bytes: body)
        let isGone = scan.take("{\"gone\":[")
        guard isGone || scan.take("{\"expire\":[") else { return nil }
        repeat {
            guard scan.take("\""), let text = scan.plainString() else { return nil }
            keys.append(text)
        } while scan.take(",")
        guard scan.take("]") else { return nil }
        if isGone { return scan.at == body.count ? .gone : nil }
        guard scan.take(",\"exp\":"), let time = scan.number(), time < UInt64(UInt32.max), scan.at == body.count else {
            return nil
        }
        return .expire(UInt32(time))
    }

    private struct Scan {
        let bytes: UnsafeRawBufferPointer
        var at = 0

        @inline(__always)
        mutating func take(_ text: StaticString) -> Bool {
            let length = text.utf8CodeUnitCount
            guard at &+ length <= bytes.count, let base = bytes.baseAddress,
                memcmp(base + at, text.utf8Start, length) == 0
            else { return false }
            at &+= length
            return true
        }

        @inline(__always)
        mutating func number() -> UInt64? {
            var value: UInt64 = 0
            let start = at
            if at &+ 8 <= bytes.count {
                // Eight digits at once: times have ten.
                let word = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self))
                let high: UInt64 = 0xF0F0_F0F0_F0F0_F0F0
                if word & high == 0x3030_3030_3030_3030,
                    (word &+ 0x0606_0606_0606_0606) & high == 0x3030_3030_3030_3030
                {
                    let pairs = ((word & 0x0F0F_0F0F_0F0F_0F0F) &* 2561) >> 8 & 0x00FF_00FF_00FF_00FF
                    let fours = (pairs &* 6_553_601) >> 16 & 0x0000_FFFF_0000_FFFF
                    value = (fours &* 42_949_672_960_001) >> 32
                    at &+= 8
                }
            }
            while at < bytes.count {
                let digit = bytes[at] &- 0x30
                guard digit < 10 else { break }
                value = value &* 10 &+ UInt64(digit)
                at &+= 1
            }
            return at > start && at &- start < 19 ? value : nil
        }

        /// A member that may be missing.
        @inline(__always)
        mutating func time(_ name: StaticString, _ into: inout UInt32) -> Bool {
            guard take(name) else { return true }
            guard let value = number(), value < UInt32.max else { return false }
            into = UInt32(truncatingIfNeeded: value)
            return true
        }

        /// The rest of a string without escapes, its closing quote passed.
        @inline(__always)
        mutating func plainString() -> UnsafeRawBufferPointer? {
            let start = at
            while at < bytes.count, bytes[at] != 0x22 {
                guard bytes[at] != 0x5C else { return nil }
                at &+= 1
            }
            guard at < bytes.count else { return nil }
            at &+= 1
            return UnsafeRawBufferPointer(rebasing: bytes[start..<(at - 1)])
        }

        /// The rest of an entity tag.
        @inline(__always)
        mutating func tag(into scratch: UnsafeMutableRawBufferPointer) -> TagBytes? {
            // A quoted hexadecimal one, as they mostly are, can be taken as it stands.
            let start = at
            let isWeak = take("W/\\\"")
            if isWeak || take("\\\"") {
                let rest = UnsafeRawBufferPointer(rebasing: bytes[at...])
                let length = HexDigits.run(rest)
                if length > 0, length < TagBytes.longest - 4 {
                    at &+= length
                    if take("\\\"\"") {
                        return TagBytes(
                            isWeak ? .weakHex : .hex, UnsafeRawBufferPointer(rebasing: rest[..<length]))
                    }
                }
            }
            at = start
            return anyTag(into: scratch)
        }

        /// The rest of a string in which only quotes and backslashes are escaped.
        private mutating func anyTag(into scratch: UnsafeMutableRawBufferPointer) -> TagBytes? {
            var length = 0
            while at < bytes.count, length < TagBytes.longest {
                var c = bytes[at]
                at &+= 1
                if c == 0x22 { return TagBytes(text: UnsafeRawBufferPointer(rebasing: scratch[..<length])) }
                if c == 0x5C {
                    guard at < bytes.count, bytes[at] == 0x22 || bytes[at] == 0x5C else { return nil }
                    c = bytes[at]
                    at &+= 1
                }
                scratch[length] = c
                length &+= 1
            }
            guard at < bytes.count, bytes[at] == 0x22 else { return nil }
            at &+= 1
            return TagBytes(text: UnsafeRawBufferPointer(rebasing: scratch[..<length]))
        }
    }

    // MARK: Any JSON

    /// Takes any other line apart whose checksum was right.
    func readAny(_ body: UnsafeRawBufferPointer) -> ManifestLine? {
        // The checksum member was the last one: close the object in its place.
        let text = UnsafeMutableRawBufferPointer.allocate(byteCount: body.count + 1, alignment: 1)
        defer { text.deallocate() }
        text.copyMemory(from: body)
        text[body.count] = 0x7D
        guard let object = JSONValue(UnsafeRawBufferPointer(text))?.object else { return nil }
        func time(_ name: String) -> UInt32? {
            object[name]?.unsigned.flatMap { $0 < UInt64(UInt32.max) ? UInt32($0) : nil }
        }
        func digest(_ name: String) -> BlobDigest? { object[name]?.string.flatMap { BlobDigest($0) } }
        func texts(_ name: String) -> [String]? {
            guard let items = object[name]?.array else { return nil }
            let texts = items.compactMap(\.string)
            return texts.count == items.count ? texts : nil
        }
        if let key = object["key"]?.string { return anyPut(key, object, time) }
        if let number = object["set"]?.unsigned, number < UInt64(TableBounds.sets) {
            return anySet(UInt32(number), object)
        }
        if let keys = texts("gone") { return .gone(keys) }
        if object["drop"] != nil { return digest("drop").map { .drop($0) } }
        if let keys = texts("uses"), let first = object["use"]?.unsigned, let at = time("at") {
            return .uses(keys, first: first, at: at)
        }
        if let keys = texts("expire"), let time = time("exp") { return .expire(keys, time) }
        if let name = object["region"]?.string { return anyRegion(name, object) }
        if let name = object["regionGone"]?.string { return .regionGone(name) }
        if let limits = object["limits"]?.object, let entries = limits["entries"]?.unsigned {
            let bytes = limits["bytes"]?.unsigned
            guard bytes != nil || limits["bytes"] == .null else { return nil }
            return .limits(
                StoreLimits(capacity: bytes.map { Int(clamping: $0) }, entryLimit: Int(clamping: entries)))
        }
        if let boot = object["boot"] {
            guard boot == .null || boot.string.map({ $0.utf8.count <= 128 }) ?? false else { return nil }
            return .boot(boot.string)
        }
        if let blob = digest("blob"), let recency = object["use"]?.unsigned { return .blobRecency(blob, recency) }
        if let next = object["rotate"]?.unsigned { return .rotate(next) }
        if let journal = object["journal"]?.unsigned { return .journalHeader(journal) }
        if let count = object["end"]?.unsigned { return .end(Int(clamping: count)) }
        return nil
    }

    private func anyPut(
        _ key: String, _ object: [String: JSONValue], _ time: (String) -> UInt32?
    ) -> ManifestLine? {
        guard let set = object["set"]?.unsigned, let set = UInt32(exactly: set), let recency = object["use"]?.unsigned,
            let storedAt = time("at"), let expires = time("exp")
        else { return nil }
        var put = PutLine()
        // Keys are at most 1,200 bytes, tags 512: both fit into the scratch space side by side.
        func copy(_ text: String, at: Int, most: Int) -> UnsafeRawBufferPointer? {
            let utf8 = Array(text.utf8)
            guard utf8.count <= most else { return nil }
            scratch[at..<(at + utf8.count)].copyBytes(from: utf8)
            return UnsafeRawBufferPointer(rebasing: scratch[at..<(at + utf8.count)])
        }
        guard let keyBytes = copy(key, at: 0, most: 2048), let keyText = KeyText(keyBytes),
            let tag = copy(object["etag"]?.string ?? "", at: 2048, most: TagBytes.longest)
        else { return nil }
        if let blob = object["blob"], blob != .null {
            guard let digest = blob.string.flatMap({ BlobDigest($0) }), let size = object["size"]?.unsigned,
                let size = UInt32(exactly: size)
            else { return nil }
            put.blob = digest
            put.size = size
        }
        put.key = keyText
        put.details.tag = TagBytes(text: tag)
        put.set = set
        put.recency = recency
        put.storedAt = storedAt
        put.expires = expires
        put.details.lastModified = time("mod") ?? Timestamp.absent
        put.details.date = time("date") ?? Timestamp.absent
        put.details.initialAge = min(time("age") ?? 0, LineBuffer.longestAge)
        put.lastUsed = time("used")
        return .put(put)
    }

    private func anySet(_ number: UInt32, _ object: [String: JSONValue]) -> ManifestLine? {
        guard let status = object["status"]?.integer else { return nil }
        var headers: [ResponseFields.Header] = []
        for item in object["headers"]?.array ?? [] {
            guard let pair = item.array, pair.count == 2, let name = pair[0].string, let value = pair[1].string else {
                return nil
            }
            headers.append(.init(name: name, value: value))
        }
        let fields = ResponseFields(
            status: Int(status), mediaType: object["type"]?.string, contentEncoding: object["encoding"]?.string,
            staleWhileRevalidate: Int(object["swr"]?.integer ?? 0), staleIfError: Int(object["sie"]?.integer ?? 0),
            mustRevalidate: object["mustRevalidate"] == .bool(true), noCache: object["noCache"] == .bool(true),
            headers: headers)
        // No put accepts others.
        return fields.storage.isStorable ? .set(number, fields) : nil
    }

    private func anyRegion(_ name: String, _ object: [String: JSONValue]) -> ManifestLine? {
        // What does not pass these checks is a damaged line: nobody could have written it.
        guard let first = anyTiles(object), let names = object["resources"].map({ $0.array }) ?? [] else { return nil }
        var tiles = object["noTiles"] == .bool(true) ? [] : [first]
        if let more = object["more"] {
            guard let items = more.array else { return nil }
            for item in items {
                guard let object = item.object, let other = anyTiles(object) else { return nil }
                tiles.append(other)
            }
        }
        var resources: [TileKey] = []
        for name in names {
            guard let text = name.string, let key = try? TileKey(text) else { return nil }
            resources.append(key)
        }
        var box: GeoBox?
        if let edges = object["box"]?.array?.compactMap(\.double), edges.count == 4 {
            box = try? GeoBox(west: edges[0], south: edges[1], east: edges[2], north: edges[3])
        }
        guard let region = try? PinnedRegion(name: name, tiles: tiles, resources: resources, box: box) else {
            return nil
        }
        return .region(region)
    }

    private func anyTiles(_ object: [String: JSONValue]) -> SourceTiles? {
        guard let name = object["source"]?.string, let source = try? SourceName(name),
            let items = object["spans"]?.array
        else { return nil }
        var spans: [TileSpan] = []
        for item in items {
            guard let n = item.array?.compactMap({ $0.integer.flatMap { Int(exactly: $0) } }), n.count == 5,
                n[1] <= n[2],
                n[3] <= n[4], let span = try? TileSpan(zoom: n[0], columns: n[1]...n[2], rows: n[3]...n[4])
            else { return nil }
            spans.append(span)
        }
        return SourceTiles(source: source, spans: spans)
    }
}
