extension TileKey: CustomStringConvertible {
    /// The canonical text form; ``init(_:)-(String)`` takes it back.
    public var description: String {
        switch address {
        case .tile(let t):
            let scale = t.scale == 1 ? "" : "@\(t.scale)x"
            let format = t.format.map { "." + $0 } ?? ""
            return "\(source)/\(t.z)/\(t.x)/\(t.y)\(scale)\(format)"
        case .resource(let r):
            let query = r.query.map { "?\($0)" } ?? ""
            let variant = r.variant.map { "#\($0)" } ?? ""
            return "\(source):\(r.path)\(query)\(variant)"
        }
    }

    /// What is wrong with the text of a tile that could not be parsed.
    private static func objection(to text: String) -> String {
        let numbers = text.split(separator: "/", omittingEmptySubsequences: false).map { part in
            part.prefix { $0 != "@" && $0 != "." }
        }
        let isPlain = numbers.allSatisfy { number in
            (1...18).contains(number.utf8.count) && number.utf8.allSatisfy { (0x30...0x39).contains($0) }
                && (number.utf8.count == 1 || number.utf8.first != 0x30)
        }
        let values = numbers.compactMap { Int($0) }
        guard isPlain, values.count == 3 else {
            return "expected source/z/x/y[@2x][.ext] with numbers without signs and leading zeros"
        }
        guard values[0] <= 28 else { return "the zoom must be in 0...28" }
        let side = 1 << values[0]
        guard values[1] < side else { return "at zoom \(values[0]) the column must be in 0..<\(side)" }
        guard values[2] < side else { return "at zoom \(values[0]) the row must be in 0..<\(side)" }
        return "expected source/z/x/y, then nothing, @2x to @8x, or .ext of 1 to 12 characters a-z 0-9"
    }

    /// Parses the UTF-8 of the text form.
    init(utf8 bytes: UnsafeRawBufferPointer) throws {
        func fail(_ why: String) -> StoreError {
            StoreError(.invalidKey, "key \(quoted(String(decoding: bytes.prefix(200), as: UTF8.self))): \(why)")
        }
        guard let mark = bytes.firstIndex(where: { !isSourceByte($0) }) else {
            throw fail("expected source/z/x/y or source:path")
        }
        let source = try SourceName(String(decoding: bytes[..<mark], as: UTF8.self))
        let rest = UnsafeRawBufferPointer(rebasing: bytes[(mark + 1)...])
        switch bytes[mark] {
        case UInt8(ascii: "/"):
            guard let tile = ScannedTile(rest) else {
                throw fail(Self.objection(to: String(decoding: rest, as: UTF8.self)))
            }
            let format = tile.format.map { String(decoding: $0, as: UTF8.self) }
            self.init(
                source: source,
                tile: try TileAddress(z: tile.z, x: tile.x, y: tile.y, scale: tile.scale, format: format))
        case UInt8(ascii: ":"):
            var end = rest.count
            var variant: Fingerprint?
            var query: Fingerprint?
            if let hash = rest[..<end].lastIndex(of: UInt8(ascii: "#")) {
                guard let value = Fingerprint(hex: rest[(hash + 1)..<end]) else { throw fail("bad variant after #") }
                (variant, end) = (value, hash)
            }
            if let question = rest[..<end].lastIndex(of: UInt8(ascii: "?")) {
                guard let value = Fingerprint(hex: rest[(question + 1)..<end]) else {
                    throw fail("bad query fingerprint after ?")
                }
                (query, end) = (value, question)
            }
            let path = String(decoding: rest[..<end], as: UTF8.self)
            self.init(source: source, resource: try ResourceAddress(path: path, query: query, variant: variant))
        default:
            throw fail("expected / or : after the source name")
        }
    }
}

/// The parts of `z/x/y[@2x][.ext]`, checked, without a copy: what the manifest's reader needs a million times.
struct ScannedTile {
    var z = 0
    var x = 0
    var y = 0
    var scale = 1
    var format: UnsafeRawBufferPointer?

    /// Parses canonical text only: no signs, no leading zeros, nothing out of range.
    @inline(__always)
    init?(_ bytes: UnsafeRawBufferPointer) {
        var at = 0
        @inline(__always)
        func number(_ at: inout Int) -> Int? {
            let start = at
            var value = 0
            while at < bytes.count, at &- start < 10 {
                let digit = bytes[at] &- 0x30
                guard digit < 10 else { break }
                value = value &* 10 &+ Int(digit)
                at &+= 1
            }
            guard at > start, at == start &+ 1 || bytes[start] != 0x30 else { return nil }
            return value
        }
        guard let z = number(&at), z <= 28, at < bytes.count, bytes[at] == 0x2F else { return nil }
        at &+= 1
        let side = 1 &<< z
        guard let x = number(&at), x < side, at < bytes.count, bytes[at] == 0x2F else { return nil }
        at &+= 1
        guard let y = number(&at), y < side else { return nil }
        (self.z, self.x, self.y) = (z, x, y)
        if at < bytes.count {
            guard let variant = Self.variant(UnsafeRawBufferPointer(rebasing: bytes[at...])) else { return nil }
            (scale, format) = variant
        }
    }

    /// Parses `[@2x][.ext]`.
    private static func variant(
        _ bytes: UnsafeRawBufferPointer
    ) -> (scale: Int, format: UnsafeRawBufferPointer?)? {
        var (at, scale) = (0, 1)
        if bytes[0] == UInt8(ascii: "@") {
            guard bytes.count >= 3, (0x32...0x38).contains(bytes[1]), bytes[2] == UInt8(ascii: "x") else { return nil }
            (at, scale) = (3, Int(bytes[1] &- 0x30))
        }
        guard at < bytes.count else { return (scale, nil) }
        guard bytes[at] == UInt8(ascii: ".") else { return nil }
        let format = UnsafeRawBufferPointer(rebasing: bytes[(at + 1)...])
        guard (1...12).contains(format.count), format.allSatisfy(isFormatByte) else { return nil }
        return (scale, format)
    }
}

extension Fingerprint {
    init?(hex: Slice<UnsafeRawBufferPointer>) {
        guard hex.count == 32 else { return nil }
        var (high, low): (UInt64, UInt64) = (0, 0)
        for (i, byte) in hex.enumerated() {
            guard let digit = hexDigitValue(byte) else { return nil }
            if i < 16 { high = high << 4 | UInt64(digit) } else { low = low << 4 | UInt64(digit) }
        }
        self.init(high: high, low: low)
    }
}

extension TileKey: Comparable {
    /// Orders by source, then tiles before other resources, then zoom, column, row, scale, format.
    public static func < (a: TileKey, b: TileKey) -> Bool {
        if a.source != b.source { return a.source < b.source }
        switch (a.address, b.address) {
        case (.tile(let p), .tile(let q)):
            return (p.z, p.x, p.y, p.scale, p.format ?? "") < (q.z, q.x, q.y, q.scale, q.format ?? "")
        case (.tile, .resource): return true
        case (.resource, .tile): return false
        case (.resource(let p), .resource(let q)):
            if p.path != q.path { return p.path < q.path }
            return (p.query?.description ?? "", p.variant?.description ?? "")
                < (q.query?.description ?? "", q.variant?.description ?? "")
        }
    }
}
