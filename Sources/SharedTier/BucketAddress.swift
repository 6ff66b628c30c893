package import ObjectStorage

/// Where a fleet's bucket is: `http(s)://HOST/BUCKET[/PREFIX]`.
package struct BucketAddress: Hashable, Sendable {
    package let bucket: S3Bucket
    package let names: ObjectNames

    /// - Parameter isVirtualHost: Whether the bucket's name is part of the host's.
    /// - Throws: What is wrong with it; the text repeats nothing of the URL that may be secret.
    package init(_ url: String, region: String, isVirtualHost: Bool = false) throws(S3Error) {
        let form = S3Error(.invalid, "expected http(s)://HOST/BUCKET or http(s)://HOST/BUCKET/PREFIX")
        guard let colon = url.firstIndex(of: ":"), url[colon...].hasPrefix("://"),
            ["http", "https"].contains(url[..<colon]), url.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }),
            !url.contains("?"), !url.contains("#")
        else { throw form }
        let rest = url[colon...].dropFirst(3)
        guard !rest.contains("@") else { throw S3Error(.invalid, "keys do not belong into a bucket's URL") }
        let parts = rest.split(separator: "/", maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count >= 2, !parts[0].isEmpty, !parts[1].isEmpty else { throw form }
        let prefix = parts.count == 3 ? String(parts[2]) : ""
        let isDotted = prefix.split(separator: "/").contains { $0 == "." || $0 == ".." }
        guard prefix.utf8.count <= 256, !prefix.contains("//"), !prefix.contains("%"), !isDotted else {
            throw S3Error(
                .invalid, "a bucket's prefix has at most 256 characters, no %, no empty part, and none that is . or ..")
        }
        bucket = try S3Bucket(
            endpoint: "\(url[..<colon])://\(parts[0])", name: String(parts[1]), region: region,
            style: isVirtualHost ? .virtualHost : .path)
        names = ObjectNames(prefix: prefix)
    }
}
