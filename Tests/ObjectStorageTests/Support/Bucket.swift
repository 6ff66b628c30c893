import Foundation
import NIOCore
import NIOPosix
import TileStore

@testable import ObjectStorage

/// The secret key and the token of all tests: nothing may show them.
let secrets = (key: "hidden-secret", token: "hidden-token")

/// Runs a body with a client of a bucket on an event loop of its own.
func withClient(
    _ url: String, bucket: String = "tiles", access: String = "AKTEST", secret: String = secrets.key,
    token: String? = secrets.token,
    now: @escaping @Sendable () -> Timestamp = { Timestamp(Date()) },
    limits change: (inout S3Limits) -> Void = { _ in },
    _ body: (S3Client, any EventLoop) async throws -> Void
) async throws {
    var limits = S3Limits()
    // On a busy machine nothing fails for want of time.
    (limits.connect, limits.request, limits.idle) = (.hours(1), .hours(1), .hours(1))
    limits.retryPause = .milliseconds(1)
    change(&limits)
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let client = S3Client(
        try S3Bucket(endpoint: url, name: bucket, region: "us-east-1"),
        try S3Credentials(accessKey: access, secretKey: secret, sessionToken: token), limits: limits, group: group,
        tls: nil,
        now: now)
    let result: Result<Void, any Error>
    do { result = .success(try await body(client, group.next())) } catch { result = .failure(error) }
    await client.shutdown()
    try await group.shutdownGracefully()
    try result.get()
}

/// The error that a body throws; `nil` if it throws none.
func failure(_ body: () async throws -> Void) async throws -> S3Error? {
    do { try await body() } catch let error as S3Error { return error }
    return nil
}

extension S3Found {
    var object: S3Object? { if case .object(let object) = self { object } else { nil } }
    var isMissing: Bool { if case .missing = self { true } else { false } }
    var isNotModified: Bool { if case .notModified = self { true } else { false } }
}
