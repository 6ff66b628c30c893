import Foundation
import OriginClient
import Testing
import TileStore
import TileStoreTesting

@testable import ObjectStorage

/// Signature Version 4: against Amazon's published examples and against botocore.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct SignatureV4Tests {
    private typealias Pair = CanonicalRequest.Pair

    /// A published example.
    ///
    /// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    struct Example: Sendable, CustomTestStringConvertible {
        var name: String
        var method = "GET"
        var key: String?
        var query: [(String, String)] = []
        var fields: [(String, String)] = []
        var body = ""
        var hash: String
        var signature: String

        var testDescription: String { name }
    }

    static let examples = [
        Example(
            name: "GET object with Range", key: "test.txt", fields: [("Range", "bytes=0-9")],
            hash: "7344ae5b7ee6c3e7e6b0fe0640412a37625d1fbfff95c48bbb2dc43964946972",
            signature: "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        Example(
            name: "PUT object with storage class", method: "PUT", key: "test$file.text",
            fields: [("Date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")],
            body: "Welcome to Amazon S3.",
            hash: "9e0e90d9c76de8fa5b200d8c849cd5b8dc7a3be3951ddb7f6a76b4158342019d",
            signature: "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
        Example(
            name: "GET bucket lifecycle", query: [("lifecycle", "")],
            hash: "9766c798316ff2757b517bc739a67f6213b4ab36dd5da2f94eaebf79c77395ca",
            signature: "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        Example(
            name: "list objects", query: [("max-keys", "2"), ("prefix", "J")],
            hash: "df57d21db20da04d7fa30298dd4488ba3a2b47ca3a489c74750e0f1e7df1b9b7",
            signature: "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ]

    @Test(arguments: examples)
    func signsAmazonsExamples(example: Example) throws {
        let bucket = try S3Bucket(
            endpoint: "https://s3.amazonaws.com", name: "examplebucket", region: "us-east-1", style: .virtualHost)
        let signer = SignatureV4(
            credentials: try S3Credentials(
                accessKey: "AKIAIOSFODNN7EXAMPLE", secretKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            region: bucket.region)
        let stamp = SignatureV4.stamp(Timestamp(seconds: 1_369_353_600))
        #expect(stamp == "20130524T000000Z")
        let payload = SignatureV4.sha256(Array(example.body.utf8))
        let fields =
            [Pair("x-amz-date", stamp), Pair("Host", bucket.origin.authority), Pair("x-amz-content-sha256", payload)]
            + example.fields.map { Pair($0.0, $0.1) }
        let request = CanonicalRequest(
            method: example.method, path: bucket.path(of: example.key), query: example.query.map { Pair($0.0, $0.1) },
            fields: fields, payload: payload)
        #expect(
            signer.stringToSign(request, stamp: stamp)
                == "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n\(example.hash)")
        #expect(signer.signature(request, stamp: stamp) == example.signature)
        let names = (["host", "x-amz-content-sha256", "x-amz-date"] + example.fields.map { $0.0.lowercased() }).sorted()
        #expect(
            signer.authorization(request, stamp: stamp)
                == "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
                + "SignedHeaders=\(names.joined(separator: ";")),Signature=\(example.signature)")
    }

    @Test func writesTheCanonicalRequestAsAmazonDoes() throws {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        let request = CanonicalRequest(
            method: "GET", path: "/", query: [Pair("prefix", "J"), Pair("max-keys", "2")],
            fields: [
                Pair("X-Amz-Date", "20130524T000000Z"), Pair("Host", "examplebucket.s3.amazonaws.com"),
                Pair("x-amz-content-sha256", empty),
            ], payload: empty)
        #expect(
            request.text == """
                GET
                /
                max-keys=2&prefix=J
                host:examplebucket.s3.amazonaws.com
                x-amz-content-sha256:\(empty)
                x-amz-date:20130524T000000Z

                host;x-amz-content-sha256;x-amz-date
                \(empty)
                """)
    }

    // RFC 4231, test cases 2 and 6; RFC 1321.
    @Test func hashesAsTheStandardsSay() throws {
        func hex(_ bytes: [UInt8]?) -> String {
            (bytes ?? []).map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        }
        #expect(
            hex(hmacSHA256(key: Array("Jefe".utf8), Array("what do ya want for nothing?".utf8)))
                == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
        let long = Array("Test Using Larger Than Block-Size Key - Hash Key First".utf8)
        #expect(
            hex(hmacSHA256(key: [UInt8](repeating: 0xAA, count: 131), long))
                == "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54")
        #expect(hex(md5([])) == "d41d8cd98f00b204e9800998ecf8427e")
        #expect(hex(md5(Array("message digest".utf8))) == "f96b697d7cb7938d525a2f31aaf161d0")
    }

    // MARK: botocore

    private struct Question: Codable {
        var method: String
        var host: String
        var path: String
        var query: [[String]]
        var fields: [[String]]
        var body: String
        var stamp: String
        var region: String
        var access: String
        var secret: String
        var token: String?
    }

    /// A text of characters that are hard to encode.
    private static func text(_ random: inout SplitMix64, _ most: Int) -> String {
        let odd: [Character] = [
            " ", "+", "%", "?", "#", "/", "&", "=", ":", ";", ",", "~", "*", "'", "\"", "<", "\\", "\u{1}", "\r", "\n",
            "ü", "文",
            "🗺", "\u{301}", "\u{FFFF}", ".", "-", "_", "$", "@", "!", "(",
        ]
        return String(
            (0..<random.below(most + 1)).map { _ in
                random.oneIn(2) ? random.pick(odd) : Character(UnicodeScalar(UInt8(33 + random.below(94))))
            })
    }

    /// A value of a field: printable ASCII, blanks at the ends and several in a row among it.
    private static func value(_ random: inout SplitMix64) -> String {
        String(
            (0..<random.below(40)).map { _ in
                random.oneIn(4) ? " " : Character(UnicodeScalar(UInt8(33 + random.below(94))))
            })
    }

    private static func question(_ random: inout SplitMix64) throws -> (Question, String) {
        let bucket = try S3Bucket(
            endpoint: "http://s3.example" + (random.oneIn(2) ? "" : ":\(1024 + random.below(60000))"),
            name: "tile-bucket",
            region: random.pick(["us-east-1", "eu-central-1", "garage"]), style: random.pick([.path, .virtualHost]))
        let credentials = try S3Credentials(
            accessKey: "KEY\(random.below(1_000_000))", secretKey: "s/+=\(random.next())",
            sessionToken: random.oneIn(2) ? "token//+=\(random.next())" : nil)
        let stamp = SignatureV4.stamp(Timestamp(seconds: Int64(random.below(4_000_000_000))))
        var (query, fields): ([[String]], [[String]]) = ([], [])
        for number in 0..<random.below(5) { query.append([text(&random, 8) + "\(number)", text(&random, 20)]) }
        for number in 0..<random.below(5) {
            fields.append(["X-Amz-Meta-n\(random.below(100))-\(number)", value(&random)])
        }
        if random.oneIn(3) { fields.append(["Range", "bytes=0-\(random.below(100))"]) }
        let key = random.oneIn(8) ? nil : text(&random, 60)
        let question = Question(
            method: random.pick(["GET", "PUT", "HEAD", "DELETE", "POST"]), host: bucket.origin.authority,
            path: bucket.path(of: key), query: query, fields: fields, body: text(&random, 50), stamp: stamp,
            region: bucket.region, access: credentials.accessKey, secret: credentials.secretKey,
            token: credentials.sessionToken)
        let payload = SignatureV4.sha256(Array(question.body.utf8))
        var signed = fields.map { Pair($0[0], $0[1]) }
        signed += [Pair("host", question.host), Pair("x-amz-date", stamp), Pair("x-amz-content-sha256", payload)]
        if let token = credentials.sessionToken { signed.append(Pair("x-amz-security-token", token)) }
        let request = CanonicalRequest(
            method: question.method, path: question.path, query: query.map { Pair($0[0], $0[1]) }, fields: signed,
            payload: payload)
        return (
            question, SignatureV4(credentials: credentials, region: bucket.region).authorization(request, stamp: stamp)
        )
    }

    @Test func signsAsBotocoreDoes() throws {
        for seed in Seeds.list(4) {
            var random = SplitMix64(seed: seed)
            let cases = try (0..<250).map { _ in try Self.question(&random) }
            let input = try JSONEncoder().encode(cases.map(\.0))
            guard let output = try Python.run("sign-with-botocore.py", input: input, needs: "botocore.auth") else {
                return
            }
            let theirs = try JSONDecoder().decode([String].self, from: output)
            #expect(theirs.count == cases.count)
            for (theirs, (question, ours)) in zip(theirs, cases) {
                #expect(theirs.replacingOccurrences(of: ", ", with: ",") == ours, "seed \(seed): \(question)")
            }
        }
    }
}
