import CacheEngine
import HTTPListener
import HTTPTypes
import NIOCore
import NIOPosix
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Sends stretches of a stored body to a client as fast as it takes them.
///
/// A connection holds one piece of the body at a time. A body in memory is shared by all who read it; one in a file is read
/// piece by piece, on the loop where the page cache has it, else on a thread that may wait.
final class BodySender: @unchecked Sendable {
    // Sendable so that a read on another thread can call it back on its loop; nothing is touched off the loop.

    /// Bytes in one piece: with what the channel buffers, a connection holds less than 256 KiB.
    static let pieceBytes = 120 << 10

    private let exchange: Exchange
    private let body: StoredBody
    private var parts: ArraySlice<BodyPart>
    private let suffix: String
    private let owner: AnyObject?
    private let onFailure: (any Error) -> Void

    /// - Parameters:
    ///   - owner: Kept until the client has all of it or is gone: what accounts for the memory.
    ///   - onFailure: Called on the loop if the body cannot be read; the response is broken off then.
    init(
        _ exchange: Exchange, _ body: StoredBody, _ parts: [BodyPart], suffix: String = "",
        owner: AnyObject? = nil, onFailure: @escaping (any Error) -> Void
    ) {
        self.exchange = exchange
        self.body = body
        self.parts = parts[...]
        self.suffix = suffix
        self.owner = owner
        self.onFailure = onFailure
    }

    /// Sends what can be sent, and the rest when the client has taken that.
    func run() {
        while exchange.isOpen {
            guard exchange.isWritable else {
                exchange.whenWritable { self.run() }
                return
            }
            guard let part = parts.popFirst() else {
                if !suffix.isEmpty { exchange.send(ByteBuffer(string: suffix)) }
                exchange.finish()
                return
            }
            if !part.prefix.isEmpty { exchange.send(ByteBuffer(string: part.prefix)) }
            let start = Int(clamping: part.bytes.lowerBound)
            let end = min(start + Self.pieceBytes, Int(clamping: part.bytes.upperBound))
            guard start >= 0, start < end, end <= body.count else { continue }
            if Int64(end) < part.bytes.upperBound {
                parts.insert(
                    BodyPart(prefix: "", bytes: Int64(end)..<part.bytes.upperBound), at: parts.startIndex)
            }
            guard send(start..<end) else { return }
        }
    }

    /// Sends a piece; `false` if it has to be waited for, or cannot be had.
    private func send(_ piece: Range<Int>) -> Bool {
        switch body {
        case .none: return true
        case .memory(let data):
            exchange.send(ByteBuffer(data, piece))
            return true
        case .file(let file):
            guard let buffer = ByteBuffer(piece, now: { file.readNow(into: $0, at: piece.lowerBound) }) else {
                ByteBuffer.read(
                    piece, on: exchange.eventLoop, { try file.read(into: $0, at: piece.lowerBound) },
                    then: { self.goOn($0) })
                return false
            }
            exchange.send(buffer)
            return true
        }
    }

    private func goOn(_ result: Result<ByteBuffer, any Error>) {
        switch result {
        case .success(let buffer):
            exchange.send(buffer)
            run()
        case .failure(let error):
            exchange.abort()
            onFailure(error)
        }
    }
}

extension ByteBuffer {
    /// A copy of a stretch of bytes.
    init(_ data: Data, _ range: Range<Int>) {
        self = ByteBuffer()
        reserveCapacity(range.count)
        data.withUnsafeBytes { _ = writeBytes(UnsafeRawBufferPointer(rebasing: $0[range])) }
    }

    /// A piece of a body, if it can be had without waiting.
    init?(_ piece: Range<Int>, now read: (UnsafeMutableRawBufferPointer) -> Bool) {
        self = ByteBuffer()
        guard fill(piece.count, read) else { return nil }
    }

    /// Reads a piece of a body on a thread that may wait; the result comes on the loop.
    static func read(
        _ piece: Range<Int>, on loop: any EventLoop,
        _ read: @escaping @Sendable (UnsafeMutableRawBufferPointer) throws -> Void,
        then next: @escaping @Sendable (Result<ByteBuffer, any Error>) -> Void
    ) {
        NIOThreadPool.singleton.submit { _ in
            let result = Result { () throws -> ByteBuffer in
                var buffer = ByteBuffer()
                _ = try buffer.fill(piece.count) { space throws in
                    try read(space)
                    return true
                }
                return buffer
            }
            loop.execute { next(result) }
        }
    }

    /// Writes so many bytes by means of a body that fills them, or nothing if it returns `false`.
    private mutating func fill(
        _ count: Int, _ body: (UnsafeMutableRawBufferPointer) throws -> Bool
    ) rethrows -> Bool {
        try writeWithUnsafeMutableBytes(minimumWritableBytes: count) { space in
            try body(UnsafeMutableRawBufferPointer(rebasing: space[..<count])) ? count : 0
        } == count
    }
}
