import NIOCore

/// A client's connection as its event loop sees it, whatever is spoken on it.
protocol ClientConnection: AnyObject {
    /// How much memory its buffers take.
    var buffered: BufferedBytes { get }
    /// Acts on what has taken too long.
    func check(at now: NIODeadline)
    /// The server is going down: ends what is idle now, and the rest after its answers.
    func drain()
    /// Closes whatever is under way.
    func kill()
}
