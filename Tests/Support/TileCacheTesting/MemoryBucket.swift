package import NIOCore
package import ObjectStorage
package import SharedTier
package import TileStore

/// A bucket in memory that can fail in the ways that buckets fail; its answers come at once.
package final class MemoryBucket: SharedObjects {
    package enum Mode: Sendable {
        case works
        /// Each request fails.
        case fails
        /// No request is ever answered.
        case hangs
        /// It may be read alone.
        case isReadOnly
    }

    private struct State {
        var objects: [String: S3Object] = [:]
        var mode = Mode.works
        var asked: [String] = []
        var written: [String] = []
        var writes = 0
        var hanging = 0
    }

    private let state = Locked(State())
    private let now: @Sendable () -> Timestamp

    /// - Parameter now: Its clock.
    package init(now: @escaping @Sendable () -> Timestamp) { self.now = now }

    package var mode: Mode {
        get { state.withLock { $0.mode } }
        set { state.withLock { $0.mode = newValue } }
    }

    /// The names of what was looked for, and of what was written.
    package var asked: [String] { state.withLock { $0.asked } }
    package var written: [String] { state.withLock { $0.written } }
    /// Requests that wait for an answer that never comes.
    package var hanging: Int { state.withLock { $0.hanging } }
    package var names: [String] { state.withLock { $0.objects.keys.sorted() } }

    /// An object, to be looked at or changed.
    package subscript(name: String) -> S3Object? {
        get { state.withLock { $0.objects[name] } }
        set { state.withLock { $0.objects[name] = newValue } }
    }

    /// Writes an index of marks.
    package func set(_ marks: Marks, as name: String = "marks.json") { set(ByteBuffer(string: marks.json), as: name) }

    package func set(_ bytes: ByteBuffer, as name: String) {
        state.withLock { state in
            state.writes += 1
            state.objects[name] = S3Object(
                bytes: bytes, size: nil, metadata: .none, entityTag: "\"\(state.writes)\"", date: nil)
        }
    }

    package func get(
        _ name: String, unlessMatching tag: String?, on loop: any EventLoop,
        _ finish: @escaping (Result<S3Found, S3Error>) -> Void
    ) -> (any SharedCall)? {
        let date = now()
        let result = state.withLock { state -> Result<S3Found, S3Error>? in
            state.asked.append(name)
            switch state.mode {
            case .fails: return .failure(S3Error(.unavailable, "503"))
            case .hangs:
                state.hanging += 1
                return nil
            case .works, .isReadOnly: break
            }
            guard var object = state.objects[name] else { return .success(.missing(date)) }
            object.date = date
            return .success(tag != nil && tag == object.entityTag ? .notModified(date) : .object(object))
        }
        guard let result else { return Call(self) }
        finish(result)
        return nil
    }

    package func put(
        _ name: String, _ bytes: ByteBuffer, _ metadata: S3Metadata, digest: BlobDigest?, on loop: any EventLoop,
        _ finish: @escaping (Result<S3Written, S3Error>) -> Void
    ) {
        let date = now()
        let result = state.withLock { state -> Result<S3Written, S3Error>? in
            switch state.mode {
            case .fails, .isReadOnly: return .failure(S3Error(.refused, "403"))
            case .hangs:
                state.hanging += 1
                return nil
            case .works: break
            }
            state.writes += 1
            state.written.append(name)
            let tag = "\"\(state.writes)\""
            state.objects[name] = S3Object(bytes: bytes, size: nil, metadata: metadata, entityTag: tag, date: date)
            return .success(S3Written(entityTag: tag, date: date))
        }
        if let result { finish(result) }
    }

    private final class Call: SharedCall {
        private let bucket: MemoryBucket
        init(_ bucket: MemoryBucket) { self.bucket = bucket }
        func cancel() { bucket.state.withLock { $0.hanging -= 1 } }
    }
}
