import HTTPCaching
import HTTPTypes
import HTTPWire
import NIOCore
import TileStore

/// The header blocks of tiles that are asked for again and again, made once for each entry; bounded in bytes.
///
/// One for each event loop. A block counts only while the store has the entry that it was made from, which every hit
/// asks it for. Two generations: what was used since the last turn survives the next.
struct PreparedTiles {
    /// Which tile, in 16 bytes.
    struct Place: Hashable {
        let high: UInt64
        let low: UInt64

        @inline(__always)
        init(source: Int, z: Int, x: Int, y: Int, scale: Int) {
            high = UInt64(truncatingIfNeeded: source) << 16 | UInt64(truncatingIfNeeded: z << 8 | scale)
            low = UInt64(truncatingIfNeeded: x) << 32 | UInt64(truncatingIfNeeded: y)
        }
    }

    /// What is sent for an entry, but for what changes from answer to answer: one allocation of some 400 bytes.
    struct Block {
        /// What has to be known of it, in front of its bytes.
        struct Header {
            let known: KnownEntry
            /// Where the fields end that a 304 has too; those about the bytes, with `Content-Length`, follow.
            let commonEnd: Int32
            let end: Int32
            /// Where the entity tag stands, as an `If-None-Match` of a browser has it.
            let tagStart: Int32
            let tagEnd: Int32
            /// Whether only clients that take gzip get this.
            let needsGzip: Bool
        }

        private let storage: ManagedBuffer<Header, UInt8>

        /// Makes a block from the lines of fields.
        init(_ known: KnownEntry, common: HTTPFields, content: HTTPFields, needsGzip: Bool) {
            var lines = ByteBuffer()
            var tag = 0..<0
            for field in common {
                lines.writeField(field)
                guard field.name == .eTag else { continue }
                let end = lines.writerIndex - 2
                tag = (end - field.withUnsafeBytesOfValue(\.count))..<end
            }
            let commonEnd = lines.writerIndex
            lines.writeFields(content)
            lines.writeField("Content-Length: ", known.size)
            let header = Header(
                known: known, commonEnd: Int32(clamping: commonEnd), end: Int32(clamping: lines.writerIndex),
                tagStart: Int32(clamping: tag.lowerBound), tagEnd: Int32(clamping: tag.upperBound),
                needsGzip: needsGzip)
            storage = .create(minimumCapacity: lines.writerIndex) { _ in header }
            storage.withUnsafeMutablePointerToElements { start in
                lines.withUnsafeReadableBytes {
                    UnsafeMutableRawBufferPointer(start: start, count: $0.count).copyMemory(from: $0)
                }
            }
        }

        /// Runs a body on the header and on all lines.
        @inline(__always)
        func read<R>(_ body: (Header, UnsafeRawBufferPointer) -> R) -> R {
            storage.withUnsafeMutablePointers { header, bytes in
                body(header.pointee, UnsafeRawBufferPointer(start: bytes, count: Int(header.pointee.end)))
            }
        }

        /// About how much memory it takes.
        var cost: Int { read { header, _ in Int(header.end) + 256 } }
    }

    private var young: [Place: Block] = [:]
    private var old: [Place: Block] = [:]
    private var youngBytes = 0
    private let generation: Int

    /// - Parameter bytes: What all blocks together may take.
    init(bytes: Int = 16 << 20) { generation = max(1, bytes / 2) }

    /// How many there are.
    var count: Int { young.count + old.count }

    @inline(__always)
    mutating func find(_ place: Place) -> Block? {
        if let block = young[place] { return block }
        guard let block = old.removeValue(forKey: place) else { return nil }
        keep(block, at: place)
        return block
    }

    mutating func keep(_ block: Block, at place: Place) {
        if let former = young.updateValue(block, forKey: place) { youngBytes -= former.cost }
        youngBytes += block.cost
        guard youngBytes > generation else { return }
        old = young
        young = [:]
        youngBytes = 0
    }

    mutating func removeAll() { self = PreparedTiles(bytes: generation * 2) }
}
