import CacheEngine
package import ObjectStorage
package import TileStore

/// A tile, or that there is none, as one proxy gives it to all others: what is known of it besides its bytes.
package struct SharedEntry: Hashable, Sendable {
    /// The tile.
    package var key: TileKey
    /// What is known of it; its times are those of the one who has it in memory, by that machine's clock.
    package var metadata: TileMetadata
    /// The name of its bytes; `nil` for the knowledge that there is no such tile.
    package var blob: BlobDigest?

    package init(key: TileKey, metadata: TileMetadata, blob: BlobDigest?) {
        (self.key, self.metadata, self.blob) = (key, metadata, blob)
    }
}

/// How far the bucket's clock is ahead of this machine's, in seconds.
package struct ClockOffset: Hashable, Sendable {
    package let seconds: Int64

    package init(seconds: Int64) { self.seconds = seconds }

    /// - Parameters:
    ///   - bucket: The time that the bucket has told.
    ///   - here: This machine's time when it did.
    package init(bucket: Timestamp, here: Timestamp) {
        // Both are from outside; none of them can be that far away.
        seconds = bucket.seconds.subtractingReportingOverflow(here.seconds).partialValue
    }

    /// Whether the two clocks are so far apart that one of them must be wrong.
    ///
    /// S3 servers refuse signatures that differ by more than a quarter of an hour from their own time, so no more than that is of
    /// any use.
    package var isImplausible: Bool { seconds.magnitude > Self.most }

    /// How far apart the clocks may be, in seconds.
    package static let most: Int64 = 900

    /// The bucket's time, of one of this machine.
    package func bucket(_ here: Timestamp) -> Timestamp { here.adding(seconds: seconds) }

    /// This machine's time, of one of the bucket.
    package func here(_ bucket: Timestamp) -> Timestamp {
        bucket.adding(seconds: seconds == .min ? .max : -seconds)
    }
}

// Times are counted from when the origin was asked, which alone is a time, by the bucket's clock: no node need know what time
// another one has.
extension SharedEntry {
    /// What an object says besides its bytes.
    ///
    /// - Returns: `nil` for what cannot be said in the space that every server has: it is not shared.
    package func objectMetadata(_ offset: ClockOffset) -> S3Metadata? {
        let (response, asked) = (metadata.response, metadata.storedAt)
        guard asked.seconds > 0, response.headers.count <= Self.mostHeaders else { return nil }
        var values: [String: [UInt8]] = [:]
        func set(_ name: String, _ text: String?) {
            if let text, !text.isEmpty { values[name] = Array(text.utf8) }
        }
        func set(_ name: String, _ number: Int64) { if number != 0 { set(name, String(number)) } }
        set(Name.key, key.description)
        set(Name.asked, String(offset.bucket(asked).seconds))
        set(Name.status, String(response.status))
        set(Name.blob, blob?.description)
        set(Name.lifetime, max(0, metadata.expires.seconds - asked.seconds))
        set(Name.age, Int64(metadata.initialAge))
        if let date = metadata.date { set(Name.date, String(date.seconds)) }
        if let modified = metadata.lastModified { set(Name.modified, String(modified.seconds)) }
        set(Name.tag, metadata.etag)
        set(Name.type, response.mediaType)
        set(Name.coding, response.contentEncoding)
        set(Name.whileRevalidate, Int64(response.staleWhileRevalidate))
        set(Name.ifError, Int64(response.staleIfError))
        set(Name.rules, (response.mustRevalidate ? "m" : "") + (response.noCache ? "n" : ""))
        for (number, header) in response.headers.enumerated() {
            guard !header.name.isEmpty, !header.name.utf8.contains(UInt8(ascii: ":")) else { return nil }
            set("\(Name.header)\(number)", "\(header.name):\(header.value)")
        }
        // What is too long for a server is the only thing that can be wrong with it.
        return try? S3Metadata(values)
    }

    /// Reads what an object says.
    ///
    /// - Parameters:
    ///   - key: The tile that was looked for.
    ///   - now: This machine's time.
    /// - Returns: `nil` if it is not a tile's, or another's, or anything is missing or out of range.
    package init?(_ object: S3Metadata, of key: TileKey, _ offset: ClockOffset, now: Timestamp) {
        var texts: [String: String] = [:]
        for (name, bytes) in object.values {
            // What others have added does not count, unless it could be taken for one of ours.
            guard let text = String(validating: bytes, as: UTF8.self) else { return nil }
            texts[name] = text
        }
        func number(_ name: String, _ range: ClosedRange<Int64>) -> Int64? {
            guard let text = texts[name] else { return range.contains(0) ? 0 : nil }
            guard let value = Int64(text), String(value) == text, range.contains(value) else { return nil }
            return value
        }
        func time(_ name: String) -> Timestamp?? {
            guard texts[name] != nil else { return .some(nil) }
            guard let seconds = number(name, Self.times) else { return nil }
            return .some(Timestamp(seconds: seconds))
        }
        guard texts[Name.key] == key.description,
            let asked = number(Name.asked, 1...Timestamp.distantFuture.seconds),
            let status = number(Name.status, 200...599), let lifetime = number(Name.lifetime, Self.times),
            let age = number(Name.age, Self.times), let date = time(Name.date), let modified = time(Name.modified),
            let whileRevalidate = number(Name.whileRevalidate, Self.times),
            let ifError = number(Name.ifError, Self.times)
        else { return nil }
        var blob: BlobDigest?
        if let text = texts[Name.blob] {
            guard let digest = BlobDigest(text), digest.description == text else { return nil }
            blob = digest
        }
        // A tile, or one of the three answers that say that there is none.
        guard blob == nil ? isAbsence(Int(status)) : status == 200 || status == 203,
            texts.allSatisfy({ $0.value.utf8.count <= Self.longestValue || !Name.isOurs($0.key) })
        else { return nil }
        let rules = texts[Name.rules] ?? ""
        guard ["", "m", "n", "mn"].contains(rules), texts[Name.tag]?.utf8.count ?? 0 <= 512 else { return nil }
        var headers: [ResponseFields.Header] = []
        while let text = texts["\(Name.header)\(headers.count)"] {
            guard headers.count < Self.mostHeaders, let colon = text.firstIndex(of: ":"), colon != text.startIndex
            else { return nil }
            headers.append(.init(name: String(text[..<colon]), value: String(text[text.index(after: colon)...])))
        }
        let storedAt = offset.here(Timestamp(seconds: asked))
        guard storedAt.seconds > 0, storedAt <= now.adding(seconds: Self.mostAhead) else { return nil }
        let response = ResponseFields(
            status: Int(status), mediaType: texts[Name.type], contentEncoding: texts[Name.coding],
            staleWhileRevalidate: Int(whileRevalidate), staleIfError: Int(ifError),
            mustRevalidate: rules.contains("m"), noCache: rules.contains("n"), headers: headers)
        self.init(
            key: key,
            metadata: TileMetadata(
                response: response, etag: texts[Name.tag], lastModified: modified, storedAt: storedAt, date: date,
                initialAge: Int(age), expires: storedAt.adding(seconds: min(lifetime, Marks.longestLifetime))),
            blob: blob)
    }

    /// How far a tile's time may lie ahead of what a node takes for the bucket's, in seconds.
    ///
    /// Both are taken from whole seconds that were under way for up to one. What lies further ahead was asked for before the bucket's
    /// clock was set back.
    static let mostAhead: Int64 = 5

    /// More fields than a tile's entry has; and no node reads an object with more.
    private static let mostHeaders = 8
    /// No value that a node writes is longer.
    private static let longestValue = 256
    /// What the store can keep.
    private static let times = 0...Int64(UInt32.max) - 1

    private enum Name {
        static let (key, asked, status, blob) = ("key", "asked", "status", "sha256")
        static let (lifetime, age, date, modified, tag) = ("lifetime", "age", "date", "modified", "etag")
        static let (type, coding, whileRevalidate, ifError) = ("type", "coding", "stale-revalidate", "stale-error")
        static let (rules, header) = ("rules", "header-")

        private static let all: Set<String> = [
            key, asked, status, blob, lifetime, age, date, modified, tag, type, coding, whileRevalidate, ifError, rules,
        ]
        static func isOurs(_ name: String) -> Bool { all.contains(name) || name.hasPrefix(header) }
    }
}
