import CZlib

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What zlib refused to compress.
package struct GzipError: Error, Sendable, CustomStringConvertible {
    /// What happened.
    package let message: String
    package var description: String { message }
}

/// gzip (RFC 1952), by zlib, with a bound on what comes out.
package enum Gzip {
    /// Whether bytes begin as gzip does.
    package static func isMarked(_ data: Data) -> Bool { data.starts(with: [0x1F, 0x8B]) }

    /// The content; `nil` if the bytes are no sound gzip, have something behind it, or hold more than the limit.
    package static func decode(_ data: Data, limit: Int) -> Data? {
        // One byte more than allowed shows that there is more.
        let output = inflated(data, most: limit + 1, partly: false)
        return output.flatMap { $0.count <= limit ? $0 : nil }
    }

    /// The first bytes of the content, sound or not what follows; `nil` if none can be had.
    package static func start(of data: Data, count: Int) -> Data? { inflated(data, most: count, partly: true) }

    /// What looking through gzip to its end has shown.
    package struct Content: Sendable {
        /// How it ends.
        package enum End: Hashable, Sendable {
            /// With the checksum and the length of what is in it, and nothing behind.
            case whole
            /// Before its end, or it is damaged, or something follows that is no gzip.
            case broken
            /// It holds more than was looked through.
            case tooLong
        }

        /// The first bytes of what is in it.
        package var start = Data()
        /// How it ends.
        package var end = End.broken
    }

    /// Decompresses all of it and keeps the first bytes.
    ///
    /// - Parameter limit: So much of the content is looked through at most.
    package static func look(through data: Data, keeping count: Int, limit: Int) -> Content {
        var content = Content()
        guard let size = uInt(exactly: data.count) else { return content }
        let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
        stream.initialize(to: z_stream())
        defer { stream.deallocate() }
        guard inflateInit2_(stream, 15 + 16, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size)) == Z_OK else {
            return content
        }
        defer { inflateEnd(stream) }
        let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
        defer { room.deallocate() }
        var produced = 0
        data.withUnsafeBytes { input in
            stream.pointee.next_in = UnsafeMutablePointer(mutating: input.bindMemory(to: UInt8.self).baseAddress)
            stream.pointee.avail_in = size
            while true {
                stream.pointee.next_out = room.bindMemory(to: UInt8.self).baseAddress
                stream.pointee.avail_out = uInt(clamping: room.count)
                let status = inflate(stream, Z_NO_FLUSH)
                let piece = UnsafeRawBufferPointer(rebasing: room[..<(room.count - Int(stream.pointee.avail_out))])
                content.start.append(contentsOf: piece.prefix(count - content.start.count))
                produced += piece.count
                if produced > limit {
                    content.end = .tooLong
                    return
                }
                if status == Z_STREAM_END {
                    if stream.pointee.avail_in == 0 {
                        content.end = .whole
                        return
                    }
                    // Several members in a row are one content (RFC 1952 §2.2).
                    if inflateReset(stream) == Z_OK { continue }
                }
                // Where nothing is left to be read, the next call makes no progress, and says so.
                guard status == Z_OK else { return }
            }
        }
        return content
    }

    /// Compresses, always to the same bytes: no time and no name are written.
    package static func encode(_ data: Data, level: Int32 = 6) throws -> Data {
        // On the heap: zlib's state points back to the stream, which therefore must not move.
        let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
        stream.initialize(to: z_stream())
        defer { stream.deallocate() }
        // 16: a gzip header and trailer instead of zlib's.
        let status = deflateInit2_(
            stream, level, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY, ZLIB_VERSION,
            Int32(MemoryLayout<z_stream>.size))
        guard status == Z_OK else { throw GzipError(message: "zlib cannot compress (status \(status))") }
        defer { deflateEnd(stream) }
        guard let size = uInt(exactly: data.count) else {
            throw GzipError(message: "\(data.count) bytes are too much for one piece of gzip")
        }
        let bound = Int(deflateBound(stream, uLong(data.count)))
        var output = Data(count: bound)
        let result = output.withUnsafeMutableBytes { out in
            data.withUnsafeBytes { input in
                stream.pointee.next_in = UnsafeMutablePointer(mutating: input.bindMemory(to: UInt8.self).baseAddress)
                stream.pointee.avail_in = size
                stream.pointee.next_out = out.bindMemory(to: UInt8.self).baseAddress
                stream.pointee.avail_out = uInt(clamping: out.count)
                return deflate(stream, Z_FINISH)
            }
        }
        guard result == Z_STREAM_END else { throw GzipError(message: "zlib cannot compress (status \(result))") }
        output.count = bound - Int(stream.pointee.avail_out)
        return output
    }

    /// Decompresses up to so many bytes; several members in a row are one content (RFC 1952 §2.2).
    ///
    /// - Parameter partly: Whether bytes that break off or are followed by damage will do.
    private static func inflated(_ data: Data, most: Int, partly: Bool) -> Data? {
        guard let size = uInt(exactly: data.count), most > 0 else { return nil }
        let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
        stream.initialize(to: z_stream())
        defer { stream.deallocate() }
        guard inflateInit2_(stream, 15 + 16, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size)) == Z_OK else {
            return nil
        }
        defer { inflateEnd(stream) }
        return data.withUnsafeBytes { input -> Data? in
            stream.pointee.next_in = UnsafeMutablePointer(mutating: input.bindMemory(to: UInt8.self).baseAddress)
            stream.pointee.avail_in = size
            var output = Data(count: min(most, max(64, 4 * input.count)))
            var filled = 0
            while true {
                if filled == output.count {
                    guard filled < most else { return output }
                    output.append(Data(count: min(most - filled, filled)))
                }
                let status = output.withUnsafeMutableBytes { out in
                    let room = UnsafeMutableRawBufferPointer(rebasing: out[filled...])
                    stream.pointee.next_out = room.bindMemory(to: UInt8.self).baseAddress
                    stream.pointee.avail_out = uInt(clamping: room.count)
                    let before = stream.pointee.avail_out
                    let status = inflate(stream, Z_NO_FLUSH)
                    filled += Int(before - stream.pointee.avail_out)
                    return status
                }
                if status == Z_STREAM_END, stream.pointee.avail_in == 0 || partly { return output.prefix(filled) }
                if status == Z_STREAM_END, inflateReset(stream) == Z_OK { continue }
                // Z_BUF_ERROR with room left: the input has ended too early.
                let goesOn = status == Z_OK || status == Z_BUF_ERROR && filled == output.count
                guard goesOn else { return partly && filled > 0 ? output.prefix(filled) : nil }
            }
        }
    }
}
