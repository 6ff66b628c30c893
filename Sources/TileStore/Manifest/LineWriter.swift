/// Where the tag of a line that was just written is to be found: its digits in the line, another one in full elsewhere.
struct TagPlace {
    var form = TagBytes.Form.none
    var at = 0
    var count = 0
}

/// The lines of the manifest as this program writes them. Docs/on-disk-format.md describes each.
extension LineBuffer {
    /// Writes the state of a key.
    ///
    /// - Returns: Where a hexadecimal tag's digits stand in this buffer; of any other tag only that it is one.
    @inline(__always)
    @discardableResult
    mutating func put(
        _ key: borrowing TileKey, blob: BlobDigest?, size: Int, set: UInt32, _ metadata: borrowing TileMetadata,
        recency: UInt64, lastUsed: Timestamp? = nil, tail: StaticString = ""
    ) -> TagPlace {
        literal("{\"key\":\"")
        self.key(key)
        byte(0x22)
        if let blob {
            literal(",\"blob\":\"")
            hex(blob)
            literal("\",\"size\":")
            number(size)
        }
        literal(",\"set\":")
        number(set)
        let place = tag(metadata.tag)
        if let lastModified = metadata.lastModified {
            literal(",\"mod\":")
            number(lastModified.packed)
        }
        literal(",\"at\":")
        number(metadata.storedAt.packed)
        if let date = metadata.date {
            literal(",\"date\":")
            number(date.packed)
        }
        if metadata.initialAge > 0 {
            literal(",\"age\":")
            number(Self.kept(initialAge: metadata.initialAge))
        }
        literal(",\"exp\":")
        number(metadata.expires.packed)
        literal(",\"use\":")
        number(recency)
        if let lastUsed, lastUsed.packed != metadata.storedAt.packed {
            literal(",\"used\":")
            number(lastUsed.packed)
        }
        endLine(tail)
        return place
    }

    /// The longest initial age that is kept: 68 years.
    static var longestAge: UInt32 { UInt32(Int32.max) }

    /// An initial age as it is kept: not below 0.
    @inline(__always)
    static func kept(initialAge: Int) -> UInt32 { min(UInt32(clamping: initialAge), longestAge) }

    @inline(__always)
    private mutating func tag(_ tag: borrowing TagValue) -> TagPlace {
        switch tag {
        case .none: return TagPlace()
        case .digits(let digits):
            literal(",\"etag\":\"")
            return withUnsafeBytes(of: digits.words) { packed in
                quoted(digits.isWeak ? .weakHex : .hex, Int(digits.count)) { out in
                    guard let base = packed.baseAddress else { return }
                    HexDigits.spell(Int(digits.count), from: base.assumingMemoryBound(to: UInt8.self), to: out)
                }
            }
        case .text(let text):
            return text.withBytes { utf8 in
                let tag = TagBytes(text: utf8)
                guard tag.form != .none else { return TagPlace() }
                literal(",\"etag\":")
                guard tag.form != .verbatim, let digits = tag.bytes.baseAddress else {
                    string(utf8: tag.bytes)
                    return TagPlace(form: tag.form)
                }
                byte(0x22)
                return quoted(tag.form, tag.bytes.count) { out in
                    UnsafeMutableRawPointer(out).copyMemory(from: digits, byteCount: tag.bytes.count)
                }
            }
        }
    }

    /// Writes the rest of a JSON string that is a quoted tag of so many digits.
    @inline(__always)
    private mutating func quoted(
        _ form: TagBytes.Form, _ count: Int, _ fill: (UnsafeMutablePointer<UInt8>) -> Void
    ) -> TagPlace {
        if form == .weakHex { literal("W/") }
        literal("\\\"")
        let place = TagPlace(form: form, at: self.count, count: count)
        write(count, fill)
        literal("\\\"\"")
        return place
    }

    mutating func set(_ number: UInt32, _ fields: ResponseFields, tail: StaticString = "") {
        literal("{\"set\":")
        self.number(number)
        literal(",\"status\":")
        self.number(fields.status)
        if let type = fields.mediaType {
            literal(",\"type\":")
            string(type)
        }
        if let encoding = fields.contentEncoding {
            literal(",\"encoding\":")
            string(encoding)
        }
        if fields.staleWhileRevalidate > 0 {
            literal(",\"swr\":")
            self.number(fields.staleWhileRevalidate)
        }
        if fields.staleIfError > 0 {
            literal(",\"sie\":")
            self.number(fields.staleIfError)
        }
        if fields.mustRevalidate { literal(",\"mustRevalidate\":true") }
        if fields.noCache { literal(",\"noCache\":true") }
        if !fields.headers.isEmpty {
            literal(",\"headers\":[")
            for (i, header) in fields.headers.enumerated() {
                literal(i == 0 ? "[" : ",[")
                string(header.name)
                byte(0x2C)
                string(header.value)
                byte(0x5D)
            }
            byte(0x5D)
        }
        endLine(tail)
    }

    private mutating func keys(_ keys: some Sequence<TileKey>) {
        byte(0x5B)
        var first = true
        for key in keys {
            literal(first ? "\"" : ",\"")
            self.key(key)
            byte(0x22)
            first = false
        }
        byte(0x5D)
    }

    mutating func gone(_ keys: some Sequence<TileKey>) {
        literal("{\"gone\":")
        self.keys(keys)
        endLine()
    }

    mutating func drop(_ digest: BlobDigest) {
        literal("{\"drop\":\"")
        hex(digest)
        byte(0x22)
        endLine()
    }

    mutating func uses(_ keys: some Sequence<TileKey>, first: UInt64, at time: Timestamp) {
        literal("{\"uses\":")
        self.keys(keys)
        literal(",\"use\":")
        number(first)
        literal(",\"at\":")
        number(time.packed)
        endLine()
    }

    mutating func expire(_ keys: some Sequence<TileKey>, at time: Timestamp) {
        literal("{\"expire\":")
        self.keys(keys)
        literal(",\"exp\":")
        number(time.packed)
        endLine()
    }

    mutating func region(_ region: PinnedRegion, tail: StaticString = "") {
        literal("{\"region\":")
        string(region.name)
        literal(",\"source\":")
        string(region.source.description)
        if let box = region.box { text(",\"box\":[\(box.west),\(box.south),\(box.east),\(box.north)]") }
        literal(",\"spans\":")
        if region.spans.isEmpty {
            // Programs that know no region without tiles take the line all the same.
            literal("[[0,0,0,0,0]],\"noTiles\":true")
        } else {
            spans(region.spans)
        }
        if !region.others.isEmpty {
            literal(",\"more\":[")
            for (i, other) in region.others.enumerated() {
                literal(i == 0 ? "{\"source\":" : ",{\"source\":")
                string(other.source.description)
                literal(",\"spans\":")
                spans(other.spans)
                byte(0x7D)
            }
            byte(0x5D)
        }
        if !region.resources.isEmpty {
            literal(",\"resources\":")
            keys(region.resources)
        }
        endLine(tail)
    }

    private mutating func spans(_ spans: [TileSpan]) {
        byte(0x5B)
        for (i, span) in spans.enumerated() {
            text(
                "\(i == 0 ? "" : ",")[\(span.zoom),\(span.columns.lowerBound),\(span.columns.upperBound),"
                    + "\(span.rows.lowerBound),\(span.rows.upperBound)]")
        }
        byte(0x5D)
    }

    mutating func regionGone(_ name: String) {
        literal("{\"regionGone\":")
        string(name)
        endLine()
    }

    mutating func limits(_ limits: StoreLimits, tail: StaticString = "") {
        literal("{\"limits\":{\"bytes\":")
        if let capacity = limits.capacity { number(capacity) } else { literal("null") }
        literal(",\"entries\":")
        number(limits.entryLimit)
        byte(0x7D)
        endLine(tail)
    }

    mutating func boot(_ id: String?, tail: StaticString = "") {
        literal("{\"boot\":")
        if let id { string(id) } else { literal("null") }
        endLine(tail)
    }

    mutating func blobRecency(_ digest: BlobDigest, _ recency: UInt64, tail: StaticString) {
        literal("{\"blob\":\"")
        hex(digest)
        literal("\",\"use\":")
        number(recency)
        endLine(tail)
    }

    mutating func rotate(to next: UInt64) {
        literal("{\"rotate\":")
        number(next)
        endLine()
    }

    mutating func journalHeader(_ generation: UInt64, after length: Int64, previous: UInt32?) {
        literal("{\"journal\":")
        number(generation)
        literal(",\"format\":1,\"after\":")
        number(UInt64(max(0, length)))
        literal(",\"previous\":\"")
        if let previous { checksum(previous) }
        byte(0x22)
        endLine()
    }

    mutating func checkpointHeader(
        _ generation: UInt64, sequence: UInt64, nextSet: UInt32, entries: Int, blobs: Int
    ) {
        literal("{\"checkpoint\":")
        number(generation)
        literal(",\"format\":1,\"sequence\":")
        number(sequence)
        literal(",\"nextSet\":")
        number(nextSet)
        literal(",\"entries\":")
        number(entries)
        literal(",\"blobs\":")
        number(blobs)
        closeObject()
        literal(",\"records\":[\n")
        markLineStart()
    }

    mutating func checkpointEnd(_ records: Int) {
        literal("{\"end\":")
        number(records)
        endLine()
        literal("]}\n")
        markLineStart()
    }
}
