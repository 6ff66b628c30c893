#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Decodes gzip (RFC 1952), for the rare server that compresses pictures.
///
/// Small rather than fast.
enum Gzip {
    /// The content, or `nil` if the bytes are no sound gzip or hold more than the limit.
    static func decode(_ data: Data, limit: Int) -> Data? {
        let bytes = [UInt8](data)
        guard bytes.count >= 18, bytes[0] == 0x1F, bytes[1] == 0x8B, bytes[2] == 8, bytes[3] & 0xE0 == 0 else {
            return nil
        }
        let flags = bytes[3]
        var at = 10
        if flags & 4 != 0 {
            guard at + 2 <= bytes.count else { return nil }
            at += 2 + Int(bytes[at]) + Int(bytes[at + 1]) << 8
        }
        // The file's name and a comment, each ended by NUL.
        for flag: UInt8 in [8, 16] where flags & flag != 0 {
            guard at < bytes.count, let end = bytes[at...].firstIndex(of: 0) else { return nil }
            at = end + 1
        }
        if flags & 2 != 0 { at += 2 }
        guard at + 8 <= bytes.count else { return nil }

        var inflater = Inflater(bytes, from: at, limit: limit)
        guard inflater.run(), inflater.position + 8 == bytes.count else { return nil }
        func word(_ at: Int) -> UInt32 {
            var value: UInt32 = 0
            for i in 0..<4 { value |= UInt32(bytes[at + i]) << UInt32(8 * i) }
            return value
        }
        guard word(bytes.count - 8) == crc32(inflater.output),
            word(bytes.count - 4) == UInt32(truncatingIfNeeded: inflater.output.count)
        else { return nil }
        return Data(inflater.output)
    }

    private static func crc32(_ bytes: [UInt8]) -> UInt32 {
        var table = [UInt32](repeating: 0, count: 256)
        for start in 0..<256 {
            var value = UInt32(start)
            for _ in 0..<8 { value = value & 1 == 1 ? (value >> 1) ^ 0xEDB8_8320 : value >> 1 }
            table[start] = value
        }
        var sum = UInt32.max
        for byte in bytes { sum = table[Int((sum ^ UInt32(byte)) & 255)] ^ (sum >> 8) }
        return ~sum
    }
}

/// Decodes DEFLATE (RFC 1951), bit by bit with canonical codes.
private struct Inflater {
    private(set) var output: [UInt8] = []
    private let input: [UInt8]
    private let limit: Int
    private var at: Int
    private var bits: UInt32 = 0
    private var bitCount = 0

    /// How many codes there are of each length, and the symbols in the order of their codes.
    private struct Code {
        var counts = [Int](repeating: 0, count: 16)
        var symbols: [Int]

        /// `nil` for lengths that ask for more codes than there are.
        init?(_ lengths: ArraySlice<Int>) {
            for length in lengths { counts[length] += 1 }
            counts[0] = 0
            var room = 1
            for length in 1..<16 {
                room = room << 1 - counts[length]
                if room < 0 { return nil }
            }
            var offsets = [Int](repeating: 0, count: 17)
            for length in 1..<16 { offsets[length + 1] = offsets[length] + counts[length] }
            symbols = [Int](repeating: 0, count: lengths.count)
            for (symbol, length) in lengths.enumerated() where length > 0 {
                symbols[offsets[length]] = symbol
                offsets[length] += 1
            }
        }
    }

    init(_ input: [UInt8], from start: Int, limit: Int) {
        self.input = input
        self.limit = limit
        at = start
    }

    /// The first byte after the stream.
    var position: Int { at }

    /// Decodes all blocks; `false` if they are not sound or too large.
    mutating func run() -> Bool {
        while true {
            guard let isLast = take(1), let kind = take(2) else { return false }
            let isSound =
                switch kind {
                case 0: copyStored()
                case 1: decodeFixed()
                case 2: decodeDynamic()
                default: false
                }
            guard isSound, output.count <= limit else { return false }
            if isLast == 1 { return true }
        }
    }

    private mutating func take(_ count: Int) -> Int? {
        while bitCount < count {
            guard at < input.count else { return nil }
            bits |= UInt32(input[at]) << UInt32(bitCount)
            bitCount += 8
            at += 1
        }
        let value = bits & (1 << UInt32(count) - 1)
        bits >>= UInt32(count)
        bitCount -= count
        return Int(value)
    }

    private mutating func symbol(_ code: Code) -> Int? {
        var (value, first, index) = (0, 0, 0)
        for length in 1..<16 {
            guard let bit = take(1) else { return nil }
            value |= bit
            let count = code.counts[length]
            if value - count < first { return code.symbols[index + value - first] }
            index += count
            first = (first + count) << 1
            value <<= 1
        }
        return nil
    }

    private mutating func copyStored() -> Bool {
        (bits, bitCount) = (0, 0)
        guard at + 4 <= input.count else { return false }
        let length = Int(input[at]) | Int(input[at + 1]) << 8
        let check = Int(input[at + 2]) | Int(input[at + 3]) << 8
        guard length == ~check & 0xFFFF, at + 4 + length <= input.count else { return false }
        output += input[(at + 4)..<(at + 4 + length)]
        at += 4 + length
        return true
    }

    private mutating func decodeFixed() -> Bool {
        let lengths = (0..<288).map { $0 < 144 ? 8 : $0 < 256 ? 9 : $0 < 280 ? 7 : 8 }
        guard let literals = Code(lengths[...]), let distances = Code([Int](repeating: 5, count: 30)[...]) else {
            return false
        }
        return decode(literals, distances)
    }

    private mutating func decodeDynamic() -> Bool {
        guard let a = take(5), let b = take(5), let c = take(4), a + 257 <= 286, b + 1 <= 30 else { return false }
        let order = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]
        var small = [Int](repeating: 0, count: 19)
        for i in order.prefix(c + 4) {
            guard let length = take(3) else { return false }
            small[i] = length
        }
        guard let code = Code(small[...]) else { return false }
        let wanted = a + 257 + b + 1
        var lengths: [Int] = []
        while lengths.count < wanted {
            guard let next = symbol(code) else { return false }
            let run: (value: Int, least: Int, bits: Int)
            switch next {
            case 16:
                guard let last = lengths.last else { return false }
                run = (last, 3, 2)
            case 17: run = (0, 3, 3)
            case 18: run = (0, 11, 7)
            default:
                lengths.append(next)
                continue
            }
            guard let more = take(run.bits) else { return false }
            lengths += [Int](repeating: run.value, count: run.least + more)
        }
        guard lengths.count == wanted, lengths[256] > 0, let literals = Code(lengths[..<(a + 257)]),
            let distances = Code(lengths[(a + 257)...])
        else { return false }
        return decode(literals, distances)
    }

    private mutating func decode(_ literals: Code, _ distances: Code) -> Bool {
        let lengthBase = [
            3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
            227, 258,
        ]
        let lengthBits = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0]
        let distanceBase = [
            1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073,
            4097, 6145, 8193, 12289, 16385, 24577,
        ]
        while output.count <= limit {
            guard let next = symbol(literals) else { return false }
            if next < 256 {
                output.append(UInt8(next))
                continue
            }
            if next == 256 { return true }
            guard next - 257 < lengthBase.count, let moreLength = take(lengthBits[next - 257]),
                let code = symbol(distances), code < distanceBase.count,
                let moreDistance = take(code < 4 ? 0 : code / 2 - 1)
            else { return false }
            let distance = distanceBase[code] + moreDistance
            guard distance <= output.count else { return false }
            for _ in 0..<(lengthBase[next - 257] + moreLength) { output.append(output[output.count - distance]) }
        }
        return false
    }
}
