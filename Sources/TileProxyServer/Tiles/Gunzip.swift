import CZlib

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Decodes gzip (RFC 1952) with a bound on what comes out, for clients that do not.
enum Gunzip {
    /// The content; `nil` if the bytes are no sound gzip or hold more than the limit.
    static func decode(_ data: Data, limit: Int) -> Data? {
        guard let size = uInt(exactly: data.count), limit > 0 else { return nil }
        // On the heap: zlib's state points back to the stream, which therefore must not move.
        let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
        stream.initialize(to: z_stream())
        defer { stream.deallocate() }
        // 16: gzip's header and trailer, not zlib's.
        guard inflateInit2_(stream, 15 + 16, ZLIB_VERSION, Int32(MemoryLayout<z_stream>.size)) == Z_OK else {
            return nil
        }
        defer { inflateEnd(stream) }
        return data.withUnsafeBytes { input -> Data? in
            stream.pointee.next_in = UnsafeMutablePointer(mutating: input.bindMemory(to: UInt8.self).baseAddress)
            stream.pointee.avail_in = size
            var output = Data(count: min(limit + 1, max(256, 4 * input.count)))
            var filled = 0
            while true {
                if filled == output.count {
                    guard filled <= limit else { return nil }
                    output.append(Data(count: min(limit + 1 - filled, filled)))
                    if filled == output.count { return nil }
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
                if status == Z_STREAM_END {
                    guard filled <= limit else { return nil }
                    if stream.pointee.avail_in == 0 { return output.prefix(filled) }
                    // Several members in a row are one content (§2.2).
                    guard inflateReset(stream) == Z_OK else { return nil }
                } else if status != Z_OK, !(status == Z_BUF_ERROR && filled == output.count) {
                    return nil
                }
            }
        }
    }
}
