import HTTPCaching
import HTTPTypes
package import NIOCore
package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Something that is asked of a bucket, and how its answer is read: a value, which does nothing by itself.
///
/// There are six: PUT, GET, HEAD and DELETE of an object, ListObjectsV2 and DeleteObjects. More is not the same on all servers.
package struct S3Operation<Answer: Sendable>: Sendable {
    let request: S3Request
    let read: @Sendable (S3Answer) throws(S3AnswerDefect) -> Answer?

    /// - Parameter read: What the answer says; `nil` if its status is none that the operation is answered with.
    init(_ request: S3Request, _ read: @escaping @Sendable (S3Answer) throws(S3AnswerDefect) -> Answer?) {
        (self.request, self.read) = (request, read)
    }
}

/// A request that is not signed yet.
struct S3Request: Sendable {
    var method: String
    /// Of the object; `nil` for the bucket.
    var key: String?
    var query: [CanonicalRequest.Pair] = []
    /// Fields that are signed, besides those that every request has.
    var fields: [CanonicalRequest.Pair] = []
    /// Fields that something on the way may change.
    var unsignedFields: [CanonicalRequest.Pair] = []
    var body = ByteBuffer()
    /// The body's hash, where it is known.
    var digest: BlobDigest?
    /// Whether the answer's body is an object, and not a document about some.
    var answersObject = false
}

/// An answer as it came: complete, not coded.
struct S3Answer: Sendable {
    var head: HTTPResponse
    var body: ByteBuffer

    var status: Int { head.status.code }

    /// The server's clock.
    var date: HTTPDate? {
        head.headerFields[.date].flatMap {
            HTTPDate(parsing: $0, now: HTTPDate(seconds: Int64(Date().timeIntervalSince1970)))
        }
    }

    func document() throws(S3AnswerDefect) -> XMLElement {
        do throws(XMLElement.Defect) { return try XMLElement(parsing: Array(body.readableBytesView)) } catch {
            throw S3AnswerDefect("a document that cannot be read: \(error)")
        }
    }

    /// S3's own name of an error; `nil` if the body has none, as that of an answer to HEAD.
    var errorCode: String? {
        // What cannot be read has no code; the status counts then.
        guard let root = try? document(), root.name == "Error", let code = try? root.text(of: "Code") else {
            return nil
        }
        guard (1...64).contains(code.utf8.count), code.utf8.allSatisfy({ $0.isPlain }) else { return nil }
        return code
    }

    /// Whether it says that there is no such object.
    ///
    /// - Parameter mayBeSilent: Whether the answer has no body that could say so, as that to HEAD: elsewhere another server's page
    ///   must not be taken for the bucket's word.
    func isMissing(mayBeSilent: Bool) -> Bool {
        status == 404 && (errorCode.map { $0 == "NoSuchKey" } ?? mayBeSilent)
    }
}

extension UInt8 {
    /// A letter, a digit or a dot.
    fileprivate var isPlain: Bool {
        (0x30...0x39).contains(self) || (0x41...0x5A).contains(self) || (0x61...0x7A).contains(self) || self == 0x2E
    }
}

/// An object that was found.
package struct S3Object: Sendable {
    /// Its bytes; none of HEAD.
    package var bytes: ByteBuffer
    /// How many bytes it has, if the server says so.
    package var size: Int64?
    /// What was stored with it.
    package var metadata: S3Metadata
    /// Its entity tag, with quotes.
    package var entityTag: String?
    /// When it was answered, by the server's clock.
    package var date: Timestamp?

    package init(
        bytes: ByteBuffer, size: Int64?, metadata: S3Metadata, entityTag: String?, date: Timestamp?
    ) {
        (self.bytes, self.size, self.metadata, self.entityTag, self.date) = (bytes, size, metadata, entityTag, date)
    }
}

/// What looking for an object finds.
package enum S3Found: Sendable {
    case object(S3Object)
    /// It is the one whose entity tag the request had.
    case notModified(Timestamp?)
    /// There is none.
    case missing(Timestamp?)
}

extension S3Answer {
    fileprivate var timestamp: Timestamp? { date.map { Timestamp(seconds: $0.seconds) } }

    fileprivate func found(_ method: String, isConditional: Bool) throws(S3AnswerDefect) -> S3Found? {
        if status == 304, isConditional { return .notModified(timestamp) }
        if isMissing(mayBeSilent: method == "HEAD") { return .missing(timestamp) }
        guard status == 200 else { return nil }
        let metadata = try S3Metadata(head.headerFields)
        let size = head.headerFields[.contentLength].flatMap { Int64($0) }
        return .object(
            S3Object(bytes: body, size: size, metadata: metadata, entityTag: head.headerFields[.eTag], date: timestamp))
    }
}

extension S3Operation where Answer == S3Found {
    /// Reads an object.
    ///
    /// - Parameter entityTag: If the object still has it, it is not sent again.
    package static func get(_ key: String, unlessMatching entityTag: String? = nil) throws(S3Error) -> S3Operation {
        try look("GET", key, entityTag)
    }

    /// Looks at an object without reading its bytes.
    ///
    /// Whether the object or its bucket is missing cannot be told apart: both are ``S3Found/missing(_:)``.
    package static func head(_ key: String, unlessMatching entityTag: String? = nil) throws(S3Error) -> S3Operation {
        try look("HEAD", key, entityTag)
    }

    private static func look(_ method: String, _ key: String, _ entityTag: String?) throws(S3Error) -> S3Operation {
        var request = S3Request(method: method, key: try checked(key), answersObject: true)
        if let entityTag {
            guard isFieldText(entityTag) else {
                throw S3Error(.invalid, "\(entityTag.debugDescription) is no entity tag")
            }
            request.unsignedFields.append(.init("If-None-Match", entityTag))
        }
        let isConditional = entityTag != nil
        return S3Operation(request) { answer throws(S3AnswerDefect) in
            try answer.found(method, isConditional: isConditional)
        }
    }
}

/// An object that was written.
package struct S3Written: Hashable, Sendable {
    /// Its entity tag, with quotes.
    package var entityTag: String?
    /// When it was answered, by the server's clock.
    package var date: Timestamp?

    package init(entityTag: String?, date: Timestamp?) { (self.entityTag, self.date) = (entityTag, date) }
}

extension S3Operation where Answer == S3Written {
    /// Writes an object, in place of one that there may be.
    ///
    /// - Parameter digest: The SHA-256 of the bytes, where it is known. The server compares it with what it gets.
    package static func put(
        _ key: String, _ bytes: ByteBuffer, contentType: String? = nil, metadata: S3Metadata = .none,
        digest: BlobDigest? = nil
    ) throws(S3Error) -> S3Operation {
        var request = S3Request(
            method: "PUT", key: try checked(key), fields: metadata.fields, body: bytes, digest: digest)
        if let contentType {
            guard isFieldText(contentType) else {
                throw S3Error(.invalid, "\(contentType.debugDescription) is no media type")
            }
            request.fields.append(.init("Content-Type", contentType))
        }
        return S3Operation(request) { answer throws(S3AnswerDefect) in
            (200..<300).contains(answer.status)
                ? S3Written(entityTag: answer.head.headerFields[.eTag], date: answer.timestamp) : nil
        }
    }
}

extension S3Operation where Answer == Void {
    /// Deletes an object, if there is one.
    package static func delete(_ key: String) throws(S3Error) -> S3Operation {
        S3Operation(S3Request(method: "DELETE", key: try checked(key))) { answer throws(S3AnswerDefect) in
            (200..<300).contains(answer.status) || answer.isMissing(mayBeSilent: true) ? () : nil
        }
    }
}

extension S3Operation where Answer == S3Listing {
    /// Lists objects in the order of their keys' bytes (ListObjectsV2).
    ///
    /// - Parameters:
    ///   - prefix: What keys begin with.
    ///   - delimiter: Keys that have it after the prefix are put together as a common prefix.
    ///   - after: Only keys after this one.
    ///   - continuing: ``S3Listing/next`` of the page before.
    ///   - most: Entries of a page, 1 to 1,000.
    package static func list(
        prefix: String = "", delimiter: String? = nil, after: String? = nil, continuing token: String? = nil,
        most: Int = 1000
    ) throws(S3Error) -> S3Operation {
        guard (1...1000).contains(most) else {
            throw S3Error(.invalid, "a listing of \(most); 1 to 1,000 can be asked for")
        }
        for text in [prefix, delimiter ?? "", after ?? ""] where text.utf8.count > S3Bucket.keyLimit {
            throw S3Error(.invalid, "a listing by a text that is longer than any key")
        }
        if let token, token.utf8.count > 16384 {
            throw S3Error(.invalid, "a continuation token of \(token.utf8.count) bytes")
        }
        var query: [CanonicalRequest.Pair] = [
            .init("list-type", "2"), .init("encoding-type", "url"), .init("max-keys", "\(most)"),
            .init("prefix", prefix),
        ]
        if let delimiter { query.append(.init("delimiter", delimiter)) }
        if let after { query.append(.init("start-after", after)) }
        if let token { query.append(.init("continuation-token", token)) }
        return S3Operation(S3Request(method: "GET", query: query)) { answer throws(S3AnswerDefect) in
            guard answer.status == 200 else { return nil }
            return try S3Listing(answer.document(), most: most, prefix: prefix)
        }
    }
}

/// An object that could not be deleted.
package struct S3DeleteFailure: Hashable, Sendable {
    /// The object's key.
    package var key: String
    /// S3's name of the error.
    package var code: String
}

extension S3Operation where Answer == [S3DeleteFailure] {
    /// Deletes up to 1,000 objects with one request (DeleteObjects); those that do not exist count as deleted.
    ///
    /// Its answer says which could not be deleted.
    package static func deleteObjects(_ keys: [String]) throws(S3Error) -> S3Operation {
        guard (1...1000).contains(keys.count) else {
            throw S3Error(.invalid, "\(keys.count) keys to delete at once; 1 to 1,000 can be")
        }
        var document =
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Quiet>true</Quiet>"
        for key in keys {
            let key = try checked(key)
            guard let text = XMLText.escape(key) else {
                throw S3Error(.invalid, "\(shown(key)): XML has no way to write this key; delete it alone")
            }
            document += "<Object><Key>\(text)</Key></Object>"
        }
        document += "</Delete>"
        let bytes = Array(document.utf8)
        guard let digest = md5(bytes) else {
            throw S3Error(
                .invalid,
                "this system's libcrypto has no MD5, which DeleteObjects needs (FIPS mode?); delete objects singly")
        }
        let asked = Set(keys)
        let fields: [CanonicalRequest.Pair] = [
            .init("Content-MD5", Data(digest).base64EncodedString()), .init("Content-Type", "application/xml"),
        ]
        let request = S3Request(
            method: "POST", query: [.init("delete", "")], fields: fields, body: ByteBuffer(bytes: bytes))
        return S3Operation(request) { answer throws(S3AnswerDefect) in
            guard answer.status == 200 else { return nil }
            let root = try answer.document()
            guard root.name == "DeleteResult" else { throw S3AnswerDefect("no result of deleting, but <\(root.name)>") }
            var failures: [S3DeleteFailure] = []
            for child in root.children where child.name == "Error" {
                guard let key = try child.text(of: "Key"), asked.contains(key), let code = try child.text(of: "Code")
                else {
                    throw S3AnswerDefect("an error about an object that nobody wanted deleted")
                }
                let isPlain = (1...64).contains(code.utf8.count) && code.utf8.allSatisfy { $0.isPlain }
                failures.append(S3DeleteFailure(key: key, code: isPlain ? code : "unknown"))
            }
            return failures
        }
    }
}

/// A key that an object can have.
private func checked(_ key: String) throws(S3Error) -> String {
    if let objection = S3Bucket.objection(toKey: key) { throw S3Error(.invalid, objection) }
    return key
}

/// A key as messages show it.
func shown(_ key: String) -> String {
    key.unicodeScalars.count > 200
        ? "\(String(key.unicodeScalars.prefix(200)).debugDescription)…" : key.debugDescription
}

/// Whether a text can be a field's value that is signed: printable ASCII, blanks within it only.
private func isFieldText(_ text: String) -> Bool {
    (1...1024).contains(text.utf8.count) && text.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }
        && text.utf8.first != 0x20 && text.utf8.last != 0x20
}
