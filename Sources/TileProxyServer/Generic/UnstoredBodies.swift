import TileStore

/// Bodies that will not be stored, and that slow clients still read: bounded in bytes together.
///
/// Nobody waits for them, and nothing else counts what they take in memory and, as files without names, on the disk. Where
/// they get too many, the one that was given up first goes, and its client's answer is broken off.
final class UnstoredBodies: Sendable {
    private struct State {
        var bodies: [UInt64: (bytes: Int, pushOut: @Sendable () -> Void)] = [:]
        var last: UInt64 = 0
        var bytes = 0

        mutating func remove(_ number: UInt64) -> (@Sendable () -> Void)? {
            guard let body = bodies.removeValue(forKey: number) else { return nil }
            bytes -= body.bytes
            return body.pushOut
        }
    }

    private let limit: Int
    private let state = Locked(State())

    init(limit: Int) { self.limit = limit }

    /// How many there have been.
    var added: UInt64 { state.withLock { $0.last } }

    /// How many bytes they have together.
    var bytes: Int { state.withLock { $0.bytes } }

    /// Counts a body until it is removed.
    ///
    /// - Parameter pushOut: Called at most once, on any thread, where others need the room.
    func add(bytes: Int, pushOut: @escaping @Sendable () -> Void) -> UInt64 {
        let (number, gone) = state.withLock { state -> (UInt64, [@Sendable () -> Void]) in
            state.last += 1
            state.bodies[state.last] = (bytes, pushOut)
            state.bytes += bytes
            var gone: [@Sendable () -> Void] = []
            while state.bytes > limit, let oldest = state.bodies.keys.min() {
                if let pushOut = state.remove(oldest) { gone.append(pushOut) }
            }
            return (state.last, gone)
        }
        for pushOut in gone { pushOut() }
        return number
    }

    /// Its client has all of it, or is gone.
    func remove(_ number: UInt64) { _ = state.withLock { $0.remove(number) } }
}
