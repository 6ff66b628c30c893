import NIOCore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Sends stretches of stored bytes to a client as fast as it takes them, without a second copy of all of them.
final class BodySender {
    private let exchange: Exchange
    private let data: Data
    private var parts: ArraySlice<StoredReply.Part>
    private let suffix: String
    private let slice = 128 << 10

    init(_ exchange: Exchange, _ data: Data, _ reply: StoredReply) {
        self.exchange = exchange
        self.data = data
        parts = reply.parts[...]
        suffix = reply.suffix
    }

    /// Sends what can be sent, and the rest when the client has taken that.
    func run() {
        while exchange.isOpen {
            guard exchange.isWritable else {
                exchange.whenWritable { self.run() }
                return
            }
            guard var part = parts.popFirst() else {
                if !suffix.isEmpty { exchange.send(ByteBuffer(string: suffix)) }
                exchange.finish()
                return
            }
            if !part.prefix.isEmpty { exchange.send(ByteBuffer(string: part.prefix)) }
            let start = Int(clamping: part.bytes.lowerBound)
            let end = min(start + slice, Int(clamping: part.bytes.upperBound))
            guard start >= 0, start < end, end <= data.count else { continue }
            exchange.send(ByteBuffer(data, start, end))
            if Int64(end) < part.bytes.upperBound {
                part = StoredReply.Part(prefix: "", bytes: Int64(end)..<part.bytes.upperBound)
                parts.insert(part, at: parts.startIndex)
            }
        }
    }
}

extension ByteBuffer {
    /// A copy of a stretch of bytes.
    fileprivate init(_ data: Data, _ start: Int, _ end: Int) {
        self = ByteBuffer()
        reserveCapacity(end - start)
        data.withUnsafeBytes { _ = writeBytes(UnsafeRawBufferPointer(rebasing: $0[start..<end])) }
    }
}
