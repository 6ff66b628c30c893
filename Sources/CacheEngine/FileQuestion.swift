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

/// A question for some bytes of a file whose parts must all be of one version.
///
/// A value: it says what to send, and judges the head of what comes back.
package struct RangeQuestion: Hashable, Sendable {
    /// What an answer is, by its head.
    package enum Verdict: Hashable, Sendable {
        /// What was asked for, of this version.
        case part(FileVersion)
        /// The file is another one by now.
        case otherVersion(String)
        /// Nothing that can be used.
        case refused(String)
        /// No answer about a part: an error, a redirect, a 304.
        case other
    }

    /// Which bytes; not empty.
    package let bytes: Range<Int64>
    /// The version that they have to be of; `nil` for whatever is there, and then the file may be shorter.
    package let version: FileVersion?
    /// What is noted with the answer's entry; `nil` for the file's length.
    package let mark: String?
    /// Whether it is asked for the second time, after the file was another one.
    package let isRepeated: Bool

    /// Asks for bytes of a version that is known.
    package init(_ bytes: Range<Int64>, of version: FileVersion, mark: String, isRepeated: Bool) {
        (self.bytes, self.version, self.mark, self.isRepeated) = (bytes, version, mark, isRepeated)
    }

    /// Asks for the first bytes of whatever version is there.
    package init(first count: Int64) {
        (bytes, version, mark, isRepeated) = (0..<count, nil, nil, false)
    }

    /// The fields to send.
    ///
    /// `If-Range` is not among them: where the version is another one it would have the whole file sent.
    var fields: HTTPFields {
        var fields = HTTPFields()
        fields[.range] = "bytes=\(bytes.lowerBound)-\(bytes.upperBound - 1)"
        fields[.accept] = "*/*"
        fields[.acceptEncoding] = "identity"
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
        switch response.status.code {
        case 206: return verdict(onPart: response.headerFields, now)
        case 200, 203:
            let what = "all of the file instead of a part"
            return version == nil ? .refused("\(what): it has to support range requests") : .otherVersion(what)
        case 412 where version != nil: return .otherVersion("an answer that the file is another one (412)")
        case 416 where version != nil: return .otherVersion("an answer that the file is shorter (416)")
        default: return .other
        }
    }

    /// Whether the body of an answer is of any use.
    package func wantsBody(of response: HTTPResponse, at now: HTTPDate) -> Bool {
        if case .part = verdict(on: response, at: now) { true } else { false }
    }

    private func verdict(onPart fields: HTTPFields, _ now: HTTPDate) -> Verdict {
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
    func count(in version: FileVersion) -> Int64 { min(bytes.upperBound, version.length) - bytes.lowerBound }

    /// A part's answer as that of a resource of its own, which can be stored.
    ///
    /// What describes the file stays with its beginning alone, by which it is asked for anew.
    func whole(_ response: HTTPResponse) -> HTTPResponse {
        var response = response
        response.status = .ok
        let isFiles: [HTTPField.Name] = version == nil ? [] : [.eTag, .lastModified]
        for name in [.contentRange, .contentType, .contentEncoding] + isFiles { response.headerFields[name] = nil }
        return response
    }
}

/// The name under which an entry notes what file it is a part of; no field can have it.
private let fileMarkName = ":file"

extension TileMetadata {
    /// What a ``RangeQuestion`` has noted.
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
