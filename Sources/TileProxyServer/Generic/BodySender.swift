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
    private var body: StoredBody
    private var parts: ArraySlice<BodyPart>
    private let suffix: String
    private let trailers: HTTPFields?
    private var owner: AnyObject?
    private let onFailure: (any Error) -> Void

    /// - Parameters:
    ///   - trailers: What follows the body.
    ///   - owner: Kept until the client has all of it or is gone: what accounts for the memory.
    ///   - onFailure: Called on the loop if the body cannot be read; the response is broken off then.
    init(
        _ exchange: Exchange, _ body: StoredBody, _ parts: [BodyPart], suffix: String = "",
        trailers: HTTPFields? = nil, owner: AnyObject? = nil, onFailure: @escaping (any Error) -> Void
    ) {
        self.exchange = exchange
        self.body = body
        self.parts = parts[...]
        self.suffix = suffix
        self.trailers = trailers
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
                exchange.finish(trailers: trailers)
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

    /// Whether there is nothing left to send, or nobody to send it to.
    var isOver: Bool { !exchange.isOpen || parts.isEmpty }

    /// Goes on with the same bytes from another place, and lets go of those it has.
    func read(from other: StoredBody) {
        guard other.count == body.count else { return }
        (body, owner) = (other, nil)
    }

    /// Sends a piece; `false` if it has to be waited for, or cannot be had.
    private func send(_ piece: Range<Int>) -> Bool {
        switch body {
        case .none: return true
        case .memory(let data):
            exchange.send(ByteBuffer(data, piece))
            return true
        case .file(let file):
            var buffer = ByteBuffer()
            let isThere = buffer.fill(piece.count) { file.readNow(into: $0, at: piece.lowerBound) }
            if isThere {
                exchange.send(buffer)
                return true
            }
            read(piece, of: file)
            return false
        }
    }

    /// Reads a piece on a thread that may wait, then goes on.
    private func read(_ piece: Range<Int>, of file: BlobFile) {
        let loop = exchange.eventLoop
        NIOThreadPool.singleton.submit { _ in
            let result = Result { () throws -> ByteBuffer in
                var buffer = ByteBuffer()
                _ = try buffer.fill(piece.count) { space throws in
                    try file.read(into: space, at: piece.lowerBound)
                    return true
                }
                return buffer
            }
            loop.execute { self.goOn(result) }
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

    /// Writes so many bytes by means of a body that fills them, or nothing if it returns `false`.
    fileprivate mutating func fill(
        _ count: Int, _ body: (UnsafeMutableRawBufferPointer) throws -> Bool
    ) rethrows -> Bool {
        try writeWithUnsafeMutableBytes(minimumWritableBytes: count) { space in
            try body(UnsafeMutableRawBufferPointer(rebasing: space[..<count])) ? count : 0
        } == count
    }
}
