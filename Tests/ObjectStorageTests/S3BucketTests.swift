import OriginClient
import Testing

@testable import ObjectStorage

/// Where a bucket's objects are, and what shows no secret.
@Suite(.timeLimit(.minutes(60)))
struct S3BucketTests {
    private func bucket(_ endpoint: String, _ style: S3Bucket.Style, _ name: String = "tiles") throws -> S3Bucket {
        try S3Bucket(endpoint: endpoint, name: name, region: "us-east-1", style: style)
    }

    @Test func addressesObjectsByPathAndByHost() throws {
        let byPath = try bucket("http://127.0.0.1:9000/", .path)
        #expect(byPath.origin.name == "http://127.0.0.1:9000")
        #expect(byPath.path(of: "a/b.png") == "/tiles/a/b.png")
        #expect(byPath.path(of: nil) == "/tiles/")
        let byHost = try bucket("https://s3.eu-central-1.amazonaws.com", .virtualHost)
        #expect(byHost.origin.name == "https://tiles.s3.eu-central-1.amazonaws.com")
        #expect(byHost.path(of: "a/b.png") == "/a/b.png")
        #expect(byHost.path(of: nil) == "/")
        #expect(try bucket("http://s3.example:81", .virtualHost).origin.authority == "tiles.s3.example:81")
    }

    @Test func encodesEveryByteOfAKeyButTheUnreserved() throws {
        let bucket = try bucket("http://s3.example", .virtualHost)
        #expect(bucket.path(of: "//a b+%?#/ü~-._*'") == "///a%20b%2B%25%3F%23/%C3%BC~-._%2A%27")
        let all = String(String.UnicodeScalarView((0..<128).compactMap { UnicodeScalar(UInt8($0)) }))
        let kept = bucket.path(of: all).split(separator: "%").count
        #expect(kept == 1 + 128 - 67)
        #expect(PercentEncoding.decode(Array(bucket.path(of: all).utf8.dropFirst())) == Array(all.utf8))
    }

    @Test func refusesKeysThatNoObjectCanHave() {
        #expect(S3Bucket.objection(toKey: "") != nil)
        #expect(S3Bucket.objection(toKey: String(repeating: "é", count: 512)) == nil)
        #expect(S3Bucket.objection(toKey: String(repeating: "é", count: 512) + "x") != nil)
    }

    @Test(arguments: [
        "", "ab", "Tiles", "-tiles", "tiles-", "til_es", "tiles..x", String(repeating: "a", count: 64), "a/b",
    ])
    func refusesNamesThatNoBucketHas(name: String) {
        #expect(throws: S3Error.self) { try bucket("http://s3.example", .path, name) }
    }

    @Test func refusesEndpointsThatCannotBeAsked() {
        for endpoint in [
            "s3.example", "ftp://s3.example", "http://s3.example/base", "http://u@s3.example", "http://s3.example?x",
        ] {
            #expect(throws: S3Error.self) { try bucket(endpoint, .path) }
        }
        #expect(throws: S3Error.self) { try bucket("http://127.0.0.1:9000", .virtualHost) }
        #expect(throws: S3Error.self) { try bucket("http://[::1]:9000", .virtualHost) }
        // A certificate's * stands for one label.
        #expect(throws: S3Error.self) { try bucket("https://s3.example", .virtualHost, "tiles.example") }
    }

    @Test func showsNoSecret() throws {
        let credentials = try S3Credentials(accessKey: "AK", secretKey: "hidden-secret", sessionToken: "hidden-token")
        var dumped = ""
        dump(credentials, to: &dumped)
        dump(SignatureV4(credentials: credentials, region: "r"), to: &dumped)
        for text in ["\(credentials)", String(reflecting: credentials), "\([credentials])", dumped] {
            #expect(!text.contains("hidden") && text.contains("AK"))
        }
        for bad in ["", "with blank", "with\nline", String(repeating: "x", count: 10000)] {
            #expect(throws: S3Error.self) { try S3Credentials(accessKey: "AK", secretKey: bad) }
            #expect(throws: S3Error.self) { try S3Credentials(accessKey: bad, secretKey: "s") }
            #expect(throws: S3Error.self) { try S3Credentials(accessKey: "AK", secretKey: "s", sessionToken: bad) }
        }
    }
}
