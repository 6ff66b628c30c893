package import HTTPCaching
package import HTTPTypes
package import TileStore

/// One version of a file at an origin, as far as its answers tell it from others.
package struct FileVersion: Hashable, Sendable {
    /// The entity tag, verbatim.
    package let tag: String?
    package let lastModified: HTTPDate?
    /// How many bytes the file has.
    package let length: Int64

    package init(tag: String?, lastModified: HTTPDate?, length: Int64) {
        (self.tag, self.lastModified, self.length) = (tag, lastModified, length)
    }

    /// Whether equal tags mean equal bytes.
    package var isStrong: Bool { tag.flatMap { EntityTag($0) }.map { !$0.isWeak } ?? false }

    /// Whether it can be told from others at all.
    var isTold: Bool { isStrong || lastModified != nil }

    /// Whether another answer is about the same version: a strong tag decides, else all that is known has to be the same.
    func isSame(as other: FileVersion) -> Bool {
        length == other.length && tag == other.tag && (isStrong || lastModified == other.lastModified)
    }
}

/// A question for a file at an origin, or for some of its bytes, where what is asked for belongs to other files or bytes.
///
/// A value: it says what to send, and judges the head of what comes back.
package struct FileQuestion: Hashable, Sendable {
    /// What is asked for.
    package enum Extent: Hashable, Sendable {
        /// Some bytes of a version that is known; not none.
        case bytes(Range<Int64>, of: FileVersion)
        /// The first bytes of whatever version is there; the file may be shorter.
        case beginning(Int64)
        /// All of a file of so many bytes at most whose name says what it is, so that it never changes.
        case object(Int64)
        /// All of a file of so many bytes at most that may change.
        case document(Int64)
    }

    /// What an answer is, by its head.
    package enum Verdict: Hashable, Sendable {
        /// The bytes that were asked for, of this version.
        case part(FileVersion)
        /// All of the file.
        case whole
        /// The file is another one by now, or what named it is.
        case otherVersion(String)
        /// Nothing that can be used.
        case refused(String)
        /// No answer about a file: an error, a redirect, a 304.
        case other
    }

    package let extent: Extent
    /// What is noted with the answer's entry; `nil` for the file's length.
    package let mark: String?
    /// Whether it is asked for the second time, after the file was another one.
    package let isRepeated: Bool

    /// Asks for bytes of a version that is known.
    package init(_ bytes: Range<Int64>, of version: FileVersion, mark: String, isRepeated: Bool) {
        (extent, self.mark, self.isRepeated) = (.bytes(bytes, of: version), mark, isRepeated)
    }

    /// Asks for the first bytes of whatever version is there.
    package init(first count: Int64) { (extent, mark, isRepeated) = (.beginning(count), nil, false) }

    /// Asks for a file that its content names.
    package init(object most: Int, isRepeated: Bool) {
        (extent, mark, self.isRepeated) = (.object(Int64(most)), nil, isRepeated)
    }

    /// Asks for a file that may change.
    package init(document most: Int) { (extent, mark, isRepeated) = (.document(Int64(most)), nil, false) }

    /// How many bytes an answer has at most.
    package var mostBytes: Int {
        switch extent {
        case .bytes(let bytes, _): bytes.count
        case .beginning(let count), .object(let count), .document(let count): Int(count)
        }
    }

    /// Whether the answer is the same for ever.
    package var isFixed: Bool {
        switch extent {
        case .bytes, .object: true
        case .beginning, .document: false
        }
    }

    /// Whether it is for some bytes of the file.
    package var isPart: Bool { bytes != nil }

    /// The bytes, if it is not for all of the file.
    private var bytes: Range<Int64>? {
        switch extent {
        case .bytes(let bytes, _): bytes
        case .beginning(let count): 0..<count
        case .object, .document: nil
        }
    }

    /// The version that the answer has to be of.
    private var version: FileVersion? { if case .bytes(_, let version) = extent { version } else { nil } }

    /// The fields to send.
    ///
    /// `If-Range` is not among them: where the version is another one it would have the whole file sent.
    /// - Parameter isKnown: Whether something is stored to ask about.
    func fields(isKnown: Bool) -> HTTPFields {
        var fields = HTTPFields()
        fields[.range] = bytes.map { "bytes=\($0.lowerBound)-\($0.upperBound - 1)" }
        fields[.accept] = "*/*"
        fields[.acceptEncoding] = "identity"
        // Caches on the way have to ask the server too (RFC 9111 §5.2.1.4): a document is asked for when it has to be the latest, and a
        // beginning without anything to ask about when the file has turned out to be another one.
        switch extent {
        case .document: fields[.cacheControl] = "no-cache"
        case .beginning where !isKnown: fields[.cacheControl] = "no-cache"
        case .beginning, .bytes, .object: break
        }
        guard let version else { return fields }
        if version.isStrong {
            fields[.ifMatch] = version.tag
        } else {
            fields[.ifUnmodifiedSince] = version.lastModified?.description
        }
        return fields
    }

    /// Judges an answer by its head.
    package func verdict(on response: HTTPResponse, at now: HTTPDate) -> Verdict {
        switch (extent, response.status.code) {
        case (.object, 200), (.object, 203), (.document, 200), (.document, 203): return .whole
        // Objects go some time after nothing names them any more: what named this one may be another one by now.
        case (.object, 404), (.object, 410):
            return .otherVersion("an answer that there is no such file (\(response.status.code))")
        case (.object, _), (.document, _): return .other
        case (.bytes(let bytes, _), 206): return verdict(onPart: response.headerFields, bytes, now)
        case (.beginning(let count), 206): return verdict(onPart: response.headerFields, 0..<count, now)
        case (.beginning, 200), (.beginning, 203):
            return .refused("all of the file instead of a part: it has to support range requests")
        case (.bytes, 200), (.bytes, 203): return .otherVersion("all of the file instead of a part")
        case (.bytes, 412): return .otherVersion("an answer that the file is another one (412)")
        case (.bytes, 416): return .otherVersion("an answer that the file is shorter (416)")
        case (.bytes, _), (.beginning, _): return .other
        }
    }

    /// Whether the body of an answer is of any use.
    package func wantsBody(of response: HTTPResponse, at now: HTTPDate) -> Bool {
        switch verdict(on: response, at: now) {
        case .part, .whole: true
        case .otherVersion, .refused, .other: false
        }
    }

    private func verdict(onPart fields: HTTPFields, _ bytes: Range<Int64>, _ now: HTTPDate) -> Verdict {
        let type = fields.combined(.contentType)?.lowercased() ?? ""
        guard !type.contains("multipart/") else { return .refused("several parts instead of one") }
        guard ContentCodings.applied(ContentCodings.value(in: fields)).isEmpty else {
            return .refused("a part in a content coding, though none was asked for")
        }
        guard let range = fields.combined(.contentRange).flatMap({ ContentRange($0) }) else {
            return .refused("a part without a Content-Range that names its bytes and the file's length")
        }
        let found = FileVersion(
            tag: EntityTag(of: fields)?.text,
            lastModified: fields.combined(.lastModified).flatMap { HTTPDate(parsing: $0, now: now) },
            length: range.length)
        if let version, !version.isSame(as: found) { return .otherVersion("a part of another version of the file") }
        guard found.isTold else {
            return .refused(
                "a file without a strong ETag and without Last-Modified: whether it has changed could not be known")
        }
        let end = version == nil ? min(bytes.upperBound, range.length) : bytes.upperBound
        guard range.bytes == bytes.lowerBound..<end else { return .refused("other bytes than were asked for") }
        if let stated = fields.combined(.contentLength), Int64(stated) != Int64(range.bytes.count) {
            return .refused("a part with a Content-Length that is not its own")
        }
        return .part(found)
    }

    /// How many bytes the body of such a part has.
    func count(in version: FileVersion) -> Int64 {
        let bytes = bytes ?? 0..<Int64(mostBytes)
        return min(bytes.upperBound, version.length) - bytes.lowerBound
    }

    /// An answer as that of a resource of its own, which can be stored.
    ///
    /// What describes the file that it is a part of stays with what it is asked for anew by.
    func whole(_ response: HTTPResponse) -> HTTPResponse {
        var response = response
        response.status = .ok
        let isFiles: [HTTPField.Name] = isFixed ? [.eTag, .lastModified] : []
        for name in [.contentRange, .contentType, .contentEncoding] + isFiles { response.headerFields[name] = nil }
        return response
    }
}

/// The name under which an entry notes what file it is a part of; no field can have it.
private let fileMarkName = ":file"

extension TileMetadata {
    /// What a ``FileQuestion`` has noted.
    package var fileMark: String? { response.headers.first { $0.name == fileMarkName }?.value }

    /// The same with another note.
    package func noting(_ mark: String?) -> TileMetadata {
        guard let mark else { return self }
        var metadata = self
        let headers =
            response.headers.filter { $0.name != fileMarkName } + [
                ResponseFields.Header(name: fileMarkName, value: mark)
            ]
        metadata.response = ResponseFields(
            status: response.status, mediaType: response.mediaType, contentEncoding: response.contentEncoding,
            staleWhileRevalidate: response.staleWhileRevalidate, staleIfError: response.staleIfError,
            mustRevalidate: response.mustRevalidate, noCache: response.noCache, headers: headers)
        return metadata
    }
}
