import TileStore

/// A request as it is signed: what Amazon calls the canonical request.
///
/// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
struct CanonicalRequest: Hashable, Sendable {
    /// The method verbatim.
    var method: String
    /// The path as it is sent, percent-encoded once.
    var path: String
    /// Names and values of the query, not encoded, in any order.
    var query: [Pair] = []
    /// All fields that are signed, `host` among them, in any order and case.
    var fields: [Pair]
    /// The SHA-256 of the body in hexadecimal digits: the value of `x-amz-content-sha256`.
    var payload: String

    /// A name and a value.
    struct Pair: Hashable, Sendable {
        var name: String
        var value: String

        init(_ name: String, _ value: String) { (self.name, self.value) = (name, value) }
    }

    /// The query as it is signed: encoded, and sorted by name and value.
    ///
    /// It may be sent like this.
    var queryText: String {
        query.map { Pair(PercentEncoding.encode($0.name.utf8), PercentEncoding.encode($0.value.utf8)) }
            .sorted { ($0.name, $0.value) < ($1.name, $1.value) }
            .map { "\($0.name)=\($0.value)" }.joined(separator: "&")
    }

    /// The signed fields: names in lower case and sorted, values trimmed, blanks within them made one.
    private var sortedFields: [Pair] {
        var byName: [String: [String]] = [:]
        for field in fields { byName[field.name.lowercased(), default: []].append(Self.collapsed(field.value)) }
        return byName.sorted { $0.key < $1.key }.map { Pair($0.key, $0.value.joined(separator: ",")) }
    }

    private static func collapsed(_ value: String) -> String {
        value.utf8.split { $0 == 0x20 || $0 == 0x09 }.map { String(decoding: Array($0), as: UTF8.self) }
            .joined(separator: " ")
    }

    /// The names of the signed fields, as the signature states them.
    var signedFields: String { sortedFields.map(\.name).joined(separator: ";") }

    /// The text whose hash is signed.
    var text: String {
        let fields = sortedFields
        return "\(method)\n\(path)\n\(queryText)\n" + fields.map { "\($0.name):\($0.value)\n" }.joined() + "\n"
            + fields.map(\.name).joined(separator: ";") + "\n\(payload)"
    }
}

/// Amazon's Signature Version 4 for the service S3, in a header field.
struct SignatureV4: Sendable {
    /// Who signs.
    var credentials: S3Credentials
    /// The bucket's region.
    var region: String

    /// The value of `x-amz-date`: `20130524T000000Z`.
    static func stamp(_ time: Timestamp) -> String { time.description.filter { $0 != "-" && $0 != ":" } }

    private func scope(_ stamp: String) -> String { "\(stamp.prefix(8))/\(region)/s3/aws4_request" }

    /// The text that the signature is made of.
    func stringToSign(_ request: CanonicalRequest, stamp: String) -> String {
        "AWS4-HMAC-SHA256\n\(stamp)\n\(scope(stamp))\n\(Self.sha256(Array(request.text.utf8)))"
    }

    /// The signature, in hexadecimal digits.
    func signature(_ request: CanonicalRequest, stamp: String) -> String {
        var key = Array("AWS4\(credentials.secretKey)".utf8)
        for part in [String(stamp.prefix(8)), region, "s3", "aws4_request", stringToSign(request, stamp: stamp)] {
            key = hmacSHA256(key: key, Array(part.utf8))
        }
        return key.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
    }

    /// The value of `Authorization`.
    func authorization(_ request: CanonicalRequest, stamp: String) -> String {
        "AWS4-HMAC-SHA256 Credential=\(credentials.accessKey)/\(scope(stamp)),SignedHeaders=\(request.signedFields),"
            + "Signature=\(signature(request, stamp: stamp))"
    }

    /// A hash as `x-amz-content-sha256` has it.
    static func sha256(_ bytes: [UInt8]) -> String {
        bytes.withUnsafeBytes { BlobDigest(hashing: $0).description }
    }
}
