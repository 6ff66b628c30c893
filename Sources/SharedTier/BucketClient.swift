import NIOCore
import NIOPosix
package import ObjectStorage
import OriginClient
package import TileStore

extension BucketAddress {
    /// Does something with a client of the bucket's, for a tool: on the process's own event loops, and with more time than a proxy has.
    ///
    /// - Parameters:
    ///   - certificateAuthorities: A PEM file of authorities to trust besides the system's.
    ///   - request: How long a request may take. A listing of a thousand takes its time, and nobody waits for a tile here; marks are
    ///     written within ``MarkWriter/request``.
    ///   - now: The clock that signatures have.
    /// - Throws: `S3Error` with `S3Error.Code.untrusted` where the authorities cannot be read, and what the body throws.
    package func withClient(
        _ credentials: S3Credentials, certificateAuthorities: String?, request: Duration = .seconds(300),
        now: @escaping @Sendable () -> Timestamp, _ body: (S3Client) async throws -> Void
    ) async throws {
        let tls = OriginTLS(certificateAuthorities: certificateAuthorities)
        do { try tls.prepare() } catch {
            throw S3Error(.untrusted, "the certificate authorities cannot be read: \(error)")
        }
        var limits = S3Limits()
        limits.request = TimeAmount(request)
        let client = S3Client(
            bucket, credentials, limits: limits, group: MultiThreadedEventLoopGroup.singleton, tls: tls, now: now)
        let result: Result<Void, any Error>
        do { result = .success(try await body(client)) } catch { result = .failure(error) }
        await client.shutdown()
        try result.get()
    }
}

extension MarkWriter {
    /// A writer on the process's own event loops.
    package init(
        _ client: S3Client, _ names: ObjectNames, now: @escaping @Sendable () -> Timestamp,
        ticks: @escaping @Sendable () -> UInt64
    ) {
        self.init(
            client, names, on: MultiThreadedEventLoopGroup.singleton.next(), now: now, ticks: ticks,
            sleep: { try await Task.sleep(nanoseconds: $0) })
    }
}
