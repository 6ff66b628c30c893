import NIOCore
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension ByteBuffer {
    /// Writes a stored body: from memory, or straight from the system's page cache, without a copy in between.
    ///
    /// - Returns: Whether that could be done without waiting. If not, nothing has been written.
    @inline(__always)
    mutating func write(_ body: KnownBody, _ size: Int, from store: TileStore) -> Bool {
        if let data = body.data {
            data.withUnsafeBytes { _ = writeBytes($0) }
            return true
        }
        let written = writeWithUnsafeMutableBytes(minimumWritableBytes: size + 1) { space in
            store.readNow(body, into: UnsafeMutableRawBufferPointer(rebasing: space[..<(size + 1)])) ? size : 0
        }
        return written == size
    }
}
