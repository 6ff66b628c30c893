/// The low half of XXH64 (seed 0) over a line's bytes: tells torn and damaged lines from whole ones.
///
/// Not a defence against forgery. https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
enum LineChecksum {
    private static let p1: UInt64 = 0x9E37_79B1_85EB_CA87
    private static let p2: UInt64 = 0xC2B2_AE3D_27D4_EB4F
    private static let p3: UInt64 = 0x1656_67B1_9E37_79F9
    private static let p4: UInt64 = 0x85EB_CA77_C2B2_AE63
    private static let p5: UInt64 = 0x27D4_EB2F_1656_67C5

    @inline(__always) private static func rotate(_ x: UInt64, _ n: UInt64) -> UInt64 { x << n | x >> (64 &- n) }
    @inline(__always) private static func round(_ acc: UInt64, _ lane: UInt64) -> UInt64 {
        rotate(acc &+ lane &* p2, 31) &* p1
    }

    static func of(_ bytes: UnsafeRawBufferPointer) -> UInt32 { UInt32(truncatingIfNeeded: xxh64(bytes)) }

    static func xxh64(_ bytes: UnsafeRawBufferPointer) -> UInt64 {
        guard let base = bytes.baseAddress else { return finish(p5, UnsafeRawBufferPointer(start: nil, count: 0), 0) }
        @inline(__always) func word(_ at: Int) -> UInt64 {
            UInt64(littleEndian: base.loadUnaligned(fromByteOffset: at, as: UInt64.self))
        }
        let count = bytes.count
        var at = 0
        var hash: UInt64
        if count >= 32 {
            var (a, b, c, d) = (p1 &+ p2, p2, UInt64(0), 0 &- p1)
            while at &+ 32 <= count {
                a = round(a, word(at))
                b = round(b, word(at &+ 8))
                c = round(c, word(at &+ 16))
                d = round(d, word(at &+ 24))
                at &+= 32
            }
            hash = rotate(a, 1) &+ rotate(b, 7) &+ rotate(c, 12) &+ rotate(d, 18)
            hash = (hash ^ round(0, a)) &* p1 &+ p4
            hash = (hash ^ round(0, b)) &* p1 &+ p4
            hash = (hash ^ round(0, c)) &* p1 &+ p4
            hash = (hash ^ round(0, d)) &* p1 &+ p4
        } else {
            hash = p5
        }
        return finish(hash, bytes, at)
    }

    private static func finish(_ start: UInt64, _ bytes: UnsafeRawBufferPointer, _ from: Int) -> UInt64 {
        var hash = start &+ UInt64(bytes.count)
        var at = from
        while at &+ 8 <= bytes.count {
            let lane = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self))
            hash = rotate(hash ^ round(0, lane), 27) &* p1 &+ p4
            at &+= 8
        }
        if at &+ 4 <= bytes.count {
            let lane = UInt64(UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: at, as: UInt32.self)))
            hash = rotate(hash ^ (lane &* p1), 23) &* p2 &+ p3
            at &+= 4
        }
        while at < bytes.count {
            hash = rotate(hash ^ (UInt64(bytes[at]) &* p5), 11) &* p1
            at &+= 1
        }
        hash = (hash ^ (hash >> 33)) &* p2
        hash = (hash ^ (hash >> 29)) &* p3
        return hash ^ (hash >> 32)
    }
}
