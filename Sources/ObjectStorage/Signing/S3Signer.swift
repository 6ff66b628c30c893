import HTTPTypes
import NIOCore
import OriginClient
import TileStore

/// Turns requests for a bucket into what is sent.
struct S3Signer: Sendable {
    let bucket: S3Bucket
    let signature: SignatureV4

    init(_ bucket: S3Bucket, _ credentials: S3Credentials) {
        self.bucket = bucket
        signature = SignatureV4(credentials: credentials, region: bucket.region)
    }

    /// Signs a request.
    ///
    /// - Parameter time: Now; servers take requests that differ from their own clock by less than 15 minutes.
    func sign(_ request: S3Request, at time: Timestamp) -> UpstreamRequest {
        let stamp = SignatureV4.stamp(time)
        let payload = request.digest?.description ?? SignatureV4.sha256(Array(request.body.readableBytesView))
        var sent = request.fields
        sent += [.init("x-amz-date", stamp), .init("x-amz-content-sha256", payload)]
        if let token = signature.credentials.sessionToken { sent.append(.init("x-amz-security-token", token)) }
        let canonical = CanonicalRequest(
            method: request.method, path: bucket.path(of: request.key), query: request.query,
            // The client sends the host by itself.
            fields: sent + [.init("host", bucket.origin.authority)], payload: payload)
        sent += request.unsignedFields
        sent.append(.init("Authorization", signature.authorization(canonical, stamp: stamp)))
        // S3 compresses nothing by itself; something between may.
        sent.append(.init("Accept-Encoding", "identity"))
        var fields = HTTPFields()
        for field in sent {
            guard let name = HTTPField.Name(field.name) else { continue }
            fields.append(HTTPField(name: name, value: field.value))
        }
        let query = canonical.queryText
        let count = request.body.readableBytes
        return UpstreamRequest(
            method: request.method, target: query.isEmpty ? canonical.path : "\(canonical.path)?\(query)",
            fields: fields,
            body: count > 0 ? .length(Int64(count)) : .none)
    }
}
