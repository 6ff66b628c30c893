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
    var key = UnsafeRawBufferPointer(start: nil, count: 0)
    var blob: BlobDigest?
    var size: UInt32 = 0
    var set: UInt32 = 0
    var tag = UnsafeRawBufferPointer(start: nil, count: 0)
    var lastModified = Timestamp.absent
    var storedAt: UInt32 = 0
    var date = Timestamp.absent
    var initialAge: UInt32 = 0
    var expires: UInt32 = 0
    var recency: UInt64 = 0
    var lastUsed: UInt32?
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
        var sum: UInt32 = 0
        for i in 0..<8 {
            guard let digit = hexDigitValue(line[at + i]) else { return nil }
            sum = sum << 4 | UInt32(digit)
        }
        return sum
    }

    /// Takes a line apart whose checksum was right; `body` is what is before the checksum member.
    @inline(__always)
    func read(_ body: UnsafeRawBufferPointer) -> ManifestLine? {
        if let put = readPut(body) { return .put(put) }
        return readAny(body)
    }

    // MARK: Our own layout

    @inline(__always)
    private func readPut(_ body: UnsafeRawBufferPointer) -> PutLine? {
        var scan = Scan(bytes: body)
        var put = PutLine()
        guard scan.take("{\"key\":\""), let key = scan.plainString() else { return nil }
        put.key = key
        if scan.take(",\"blob\":\"") {
            guard scan.at + 65 <= body.count,
                let digest = BlobDigest(hex: UnsafeRawBufferPointer(rebasing: body[scan.at..<(scan.at + 64)])),
                body[scan.at + 64] == 0x22
            else { return nil }
            scan.at += 65
            guard scan.take(",\"size\":"), let size = scan.number(), size <= UInt32.max else { return nil }
            put.blob = digest
            put.size = UInt32(size)
        }
        guard scan.take(",\"set\":"), let set = scan.number(), set <= UInt32.max else { return nil }
        put.set = UInt32(set)
        if scan.take(",\"etag\":\"") {
            guard let tag = scan.tag(into: scratch) else { return nil }
            put.tag = tag
        }
        func time(_ name: StaticString, _ into: inout UInt32) -> Bool {
            guard scan.take(name) else { return true }
            guard let value = scan.number(), value < UInt32.max else { return false }
            into = UInt32(value)
            return true
        }
        guard time(",\"mod\":", &put.lastModified), time(",\"at\":", &put.storedAt), time(",\"date\":", &put.date),
            time(",\"age\":", &put.initialAge), time(",\"exp\":", &put.expires), scan.take(",\"use\":"),
            let recency = scan.number()
        else { return nil }
        put.recency = recency
        var used = Timestamp.absent
        guard time(",\"used\":", &used), scan.at == body.count else { return nil }
        if used != Timestamp.absent { put.lastUsed = used }
        return put
    }

    private struct Scan {
        let bytes: UnsafeRawBufferPointer
        var at = 0

        @inline(__always)
        mutating func take(_ text: StaticString) -> Bool {
            let length = text.utf8CodeUnitCount
            guard at &+ length <= bytes.count else { return false }
            let start = text.utf8Start
            for i in 0..<length where bytes[at &+ i] != start[i] { return false }
            at &+= length
            return true
        }

        @inline(__always)
        mutating func number() -> UInt64? {
            var value: UInt64 = 0
            let start = at
            while at < bytes.count {
                let digit = bytes[at] &- 0x30
                guard digit < 10 else { break }
                value = value &* 10 &+ UInt64(digit)
                at &+= 1
            }
            return at > start && at &- start < 19 ? value : nil
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

        /// The rest of a string in which only quotes and backslashes are escaped.
        @inline(__always)
        mutating func tag(into scratch: UnsafeMutableRawBufferPointer) -> UnsafeRawBufferPointer? {
            var length = 0
            while at < bytes.count, length < TagArena.longest {
                var c = bytes[at]
                at &+= 1
                if c == 0x22 { return UnsafeRawBufferPointer(rebasing: scratch[..<length]) }
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
            return UnsafeRawBufferPointer(rebasing: scratch[..<length])
        }
    }

    // MARK: Any JSON

    private func readAny(_ body: UnsafeRawBufferPointer) -> ManifestLine? {
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
        if let number = object["set"]?.unsigned, let number = UInt32(exactly: number) { return anySet(number, object) }
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
            return .limits(
                StoreLimits(capacity: bytes.flatMap { Int(exactly: $0) }, entryLimit: Int(clamping: entries)))
        }
        if let boot = object["boot"] { return .boot(boot.string) }
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
        guard let keyBytes = copy(key, at: 0, most: 2048),
            let tag = copy(object["etag"]?.string ?? "", at: 2048, most: TagArena.longest)
        else { return nil }
        if let blob = object["blob"], blob != .null {
            guard let digest = blob.string.flatMap({ BlobDigest($0) }), let size = object["size"]?.unsigned,
                let size = UInt32(exactly: size)
            else { return nil }
            put.blob = digest
            put.size = size
        }
        put.key = keyBytes
        put.tag = tag
        put.set = set
        put.recency = recency
        put.storedAt = storedAt
        put.expires = expires
        put.lastModified = time("mod") ?? Timestamp.absent
        put.date = time("date") ?? Timestamp.absent
        put.initialAge = time("age") ?? 0
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
        return .set(
            number,
            ResponseFields(
                status: Int(status), mediaType: object["type"]?.string, contentEncoding: object["encoding"]?.string,
                staleWhileRevalidate: Int(object["swr"]?.integer ?? 0), staleIfError: Int(object["sie"]?.integer ?? 0),
                mustRevalidate: object["mustRevalidate"] == .bool(true), noCache: object["noCache"] == .bool(true),
                headers: headers))
    }

    private func anyRegion(_ name: String, _ object: [String: JSONValue]) -> ManifestLine? {
        guard let source = object["source"]?.string, let items = object["spans"]?.array else { return nil }
        var spans: [TileSpan] = []
        for item in items {
            guard let n = item.array?.compactMap({ $0.integer.flatMap { Int(exactly: $0) } }), n.count == 5,
                n[1] <= n[2],
                n[3] <= n[4], let span = try? TileSpan(zoom: n[0], columns: n[1]...n[2], rows: n[3]...n[4])
            else { return nil }
            spans.append(span)
        }
        var box: GeoBox?
        if let edges = object["box"]?.array?.compactMap(\.double), edges.count == 4 {
            box = try? GeoBox(west: edges[0], south: edges[1], east: edges[2], north: edges[3])
        }
        // What does not pass these checks is a damaged line: nobody could have written it.
        guard let source = try? SourceName(source),
            let region = try? PinnedRegion(name: name, source: source, spans: spans, box: box)
        else { return nil }
        return .region(region)
    }
}
