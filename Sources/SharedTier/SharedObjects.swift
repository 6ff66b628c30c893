package import NIOCore
package import ObjectStorage
package import TileStore

/// What the shared tier asks of its bucket; to be called on an event loop of the client's.
package protocol SharedObjects: Sendable {
    /// Reads an object.
    ///
    /// - Parameters:
    ///   - tag: If the object still has it, it is not sent again.
    ///   - finish: Called once, on the loop.
    /// - Returns: The request, while it is under way.
    func get(
        _ name: String, unlessMatching tag: String?, on loop: any EventLoop,
        _ finish: @escaping (Result<S3Found, S3Error>) -> Void
    ) -> (any SharedCall)?

    /// Writes an object, in place of one that there may be.
    ///
    /// - Parameter digest: The SHA-256 of the bytes, if it is known.
    func put(
        _ name: String, _ bytes: ByteBuffer, _ metadata: S3Metadata, digest: BlobDigest?, on loop: any EventLoop,
        _ finish: @escaping (Result<S3Written, S3Error>) -> Void
    )
}

/// A request that is under way; belongs to its event loop.
package protocol SharedCall: AnyObject {
    /// Gives it up: it ends as cancelled.
    func cancel()
}

extension S3Call: SharedCall {}

extension S3Client: SharedObjects {
    package func get(
        _ name: String, unlessMatching tag: String?, on loop: any EventLoop,
        _ finish: @escaping (Result<S3Found, S3Error>) -> Void
    ) -> (any SharedCall)? {
        do throws(S3Error) { return send(try .get(name, unlessMatching: tag), on: loop, finish) } catch {
            finish(.failure(error))
            return nil
        }
    }

    package func put(
        _ name: String, _ bytes: ByteBuffer, _ metadata: S3Metadata, digest: BlobDigest?, on loop: any EventLoop,
        _ finish: @escaping (Result<S3Written, S3Error>) -> Void
    ) {
        do throws(S3Error) {
            let operation: S3Operation<S3Written> = try .put(name, bytes, metadata: metadata, digest: digest)
            _ = send(operation, on: loop, finish)
        } catch { finish(.failure(error)) }
    }
}
