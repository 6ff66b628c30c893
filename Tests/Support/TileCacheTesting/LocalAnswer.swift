package import HTTPTypes
package import NIOCore

/// What a local origin answers.
package struct LocalAnswer: Sendable {
    enum Content: Sendable {
        case plain(HTTPResponse, ByteBuffer)
        case prepared(PreparedAnswer)
        case raw([RawStep])
    }
    let content: Content
    /// What has to open before anything is sent.
    package var gate: Gate?

    /// A well-formed answer; `Content-Length` is added where there may be a body and the fields name no length.
    package init(
        _ status: HTTPResponse.Status = .ok, _ fields: HTTPFields = [:], body: some Sequence<UInt8> = [],
        gate: Gate? = nil
    ) {
        content = .plain(HTTPResponse(status: status, headerFields: fields), ByteBuffer(bytes: body))
        self.gate = gate
    }

    /// A well-formed answer with a text for its body.
    package init(
        _ status: HTTPResponse.Status = .ok, _ fields: HTTPFields = [:], text: String, gate: Gate? = nil
    ) {
        self.init(status, fields, body: text.utf8, gate: gate)
    }

    /// An answer whose bytes are ready.
    package init(_ prepared: PreparedAnswer) { content = .prepared(prepared) }

    /// Bytes and accidents, one after another; after the last one the connection serves the next request.
    package static func raw(_ steps: RawStep...) -> LocalAnswer { .raw(steps) }

    /// Bytes and accidents, one after another.
    package static func raw(_ steps: [RawStep]) -> LocalAnswer { LocalAnswer(content: .raw(steps)) }

    private init(content: Content) { self.content = content }

    /// Its body; `nil` for one that is not told apart from the rest.
    package var body: [UInt8]? {
        if case .plain(_, let body) = content { Array(body.readableBytesView) } else { nil }
    }

    /// Answers 304 if the request's validator is this answer's own, else answers in full.
    ///
    /// `If-None-Match` is compared with the answer's `ETag` by the weak comparison (RFC 9110 section 8.8.3.2), and wins over
    /// `If-Modified-Since`, which has to be the very text of `Last-Modified`.
    package func conditional(to request: OriginRequest) -> LocalAnswer {
        guard case .plain(let response, _) = content, response.status == .ok else { return self }
        let fields = response.headerFields
        let matches: Bool
        if let asked = request.fields[.ifNoneMatch] {
            let own = fields[.eTag].map(opaqueTag)
            matches = asked.split(separator: ",").contains { tag in
                let tag = tag.trimmed
                return tag == "*" || opaqueTag(String(tag)) == own
            }
        } else if let asked = request.fields[.ifModifiedSince] {
            matches = asked == fields[.lastModified]
        } else {
            matches = false
        }
        guard matches else { return self }
        var kept = fields
        for name in [HTTPField.Name.contentLength, .contentType, .contentEncoding] { kept[name] = nil }
        return LocalAnswer(.notModified, kept, gate: gate)
    }

    private func opaqueTag(_ tag: String) -> String { tag.hasPrefix("W/") ? String(tag.dropFirst(2)) : tag }
}

extension Substring {
    fileprivate var trimmed: Substring {
        var text = self
        while text.first == " " { text.removeFirst() }
        while text.last == " " { text.removeLast() }
        return text
    }
}

/// A whole answer as bytes, made once and sent often.
package struct PreparedAnswer: Sendable {
    let bytes: ByteBuffer
    let headLength: Int

    /// Lays out status line, fields and body.
    package init(_ response: HTTPResponse, body: ByteBuffer) {
        var bytes = ByteBufferAllocator().buffer(capacity: 256 + body.readableBytes)
        bytes.writeHead(response, bodyLength: body.readableBytes)
        headLength = bytes.readableBytes
        bytes.writeImmutableBuffer(body)
        self.bytes = bytes
    }

    /// What is sent to a request: `HEAD` gets no body.
    func bytes(isHead: Bool) -> ByteBuffer {
        isHead ? bytes.getSlice(at: bytes.readerIndex, length: headLength) ?? bytes : bytes
    }
}

extension ByteBuffer {
    mutating func writeHead(_ response: HTTPResponse, bodyLength: Int) {
        writeString("HTTP/1.1 \(response.status.code) \(response.status.reasonPhrase)\r\n")
        for field in response.headerFields {
            writeString(field.name.rawName)
            writeString(": ")
            field.withUnsafeBytesOfValue { _ = writeBytes($0) }
            writeString("\r\n")
        }
        let bodiless =
            response.status.code == 204 || response.status.code == 304 || response.status.kind == .informational
        if !bodiless, !response.headerFields.contains(.contentLength),
            !response.headerFields.contains(.transferEncoding)
        {
            writeString("Content-Length: \(bodyLength)\r\n")
        }
        writeString("\r\n")
    }
}
