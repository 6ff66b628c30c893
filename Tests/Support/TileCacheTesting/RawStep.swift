package import NIOCore

/// One thing that a server does on a connection, right or wrong.
package enum RawStep: Sendable {
    /// Sends bytes and waits until the system has taken them.
    case bytes([UInt8])
    /// Sends a part again and again, a millisecond after the system has taken the one before, until the connection is closed.
    case endless([UInt8])
    /// Sends a byte again and again, one each interval, until the connection is closed.
    case drip(UInt8, every: TimeAmount)
    /// Waits for a gate.
    case wait(Gate)
    /// Closes the connection in good order.
    case close
    /// Closes the connection without a close_notify where it is encrypted, as somebody in the middle could.
    case cut
    /// Breaks the connection off with a TCP reset.
    case reset
    /// Does nothing any more; the connection stays open until the client closes it.
    case hang

    /// Sends a text in which each line end is CR LF.
    package static func text(_ text: String) -> RawStep { .bytes(Array(text.utf8).withLineEnds) }
}

extension [UInt8] {
    fileprivate var withLineEnds: [UInt8] {
        flatMap { $0 == UInt8(ascii: "\n") ? [UInt8(ascii: "\r"), $0] : [$0] }
    }
}
