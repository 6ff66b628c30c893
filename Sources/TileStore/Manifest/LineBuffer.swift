/// Bytes of manifest lines being written: grows, is reused, and closes each line with its checksum.
struct LineBuffer: ~Copyable {
    private(set) var count = 0
    private var capacity: Int
    private var memory: UnsafeMutablePointer<UInt8>
    private var lineStart = 0

    init(capacity: Int = 4096) {
        self.capacity = capacity
        memory = .allocate(capacity: capacity)
    }

    deinit { memory.deallocate() }

    var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: memory, count: count) }

    mutating func removeAll() {
        count = 0
        lineStart = 0
        if capacity > 1 << 20 {
            memory.deallocate()
            capacity = 1 << 16
            memory = .allocate(capacity: capacity)
        }
    }

    @inline(__always)
    private mutating func reserve(_ more: Int) {
        if count &+ more > capacity { grow(more) }
    }

    private mutating func grow(_ more: Int) {
        let larger = max(capacity * 2, count + more)
        let fresh = UnsafeMutablePointer<UInt8>.allocate(capacity: larger)
        fresh.update(from: memory, count: count)
        memory.deallocate()
        memory = fresh
        capacity = larger
    }

    @inline(__always)
    mutating func literal(_ text: StaticString) {
        let length = text.utf8CodeUnitCount
        reserve(length)
        (memory + count).update(from: text.utf8Start, count: length)
        count &+= length
    }

    @inline(__always)
    mutating func byte(_ byte: UInt8) {
        reserve(1)
        memory[count] = byte
        count &+= 1
    }

    /// Makes room for so many bytes and has them filled in.
    @inline(__always)
    mutating func write(_ length: Int, _ fill: (UnsafeMutablePointer<UInt8>) -> Void) {
        reserve(length)
        fill(memory + count)
        count &+= length
    }

    @inline(__always)
    mutating func raw(_ bytes: UnsafeRawBufferPointer) {
        guard let base = bytes.baseAddress else { return }
        reserve(bytes.count)
        (memory + count).update(from: base.assumingMemoryBound(to: UInt8.self), count: bytes.count)
        count += bytes.count
    }

    @inline(__always)
    mutating func number(_ value: UInt64) {
        reserve(20)
        let length = Self.digitCount(value)
        count &+= length
        var at = memory + count
        var rest = value
        while rest >= 10 {
            let tenth = rest / 10
            at -= 1
            at.pointee = 0x30 &+ UInt8(truncatingIfNeeded: rest &- tenth &* 10)
            rest = tenth
        }
        at -= 1
        at.pointee = 0x30 &+ UInt8(truncatingIfNeeded: rest)
    }

    @inline(__always)
    private static func digitCount(_ value: UInt64) -> Int {
        var (length, power): (Int, UInt64) = (1, 10)
        while value >= power, length < 20 {
            length &+= 1
            power = length < 20 ? power &* 10 : .max
        }
        return length
    }

    @inline(__always) mutating func number(_ value: Int) { number(UInt64(max(0, value))) }
    @inline(__always) mutating func number(_ value: UInt32) { number(UInt64(value)) }

    @inline(__always)
    mutating func hex(_ digest: BlobDigest) {
        reserve(64)
        digest.spell(to: memory + count)
        count &+= 64
    }

    /// The text of a key, which needs no escaping.
    @inline(__always)
    mutating func key(_ key: borrowing TileKey) {
        text(key.source.description)
        switch key.address {
        case .tile(let tile):
            byte(0x2F)
            number(tile.z)
            byte(0x2F)
            number(tile.x)
            byte(0x2F)
            number(tile.y)
            if tile.scale != 1 {
                byte(UInt8(ascii: "@"))
                number(tile.scale)
                byte(UInt8(ascii: "x"))
            }
            if let format = tile.format {
                byte(UInt8(ascii: "."))
                text(format)
            }
        case .resource(let resource):
            byte(UInt8(ascii: ":"))
            text(resource.path)
            if let query = resource.query { text("?\(query)") }
            if let variant = resource.variant { text("#\(variant)") }
        }
    }

    /// Text without quotes, as it is.
    @inline(__always)
    mutating func text(_ text: String) { text.withBytes { raw($0) } }

    /// A JSON string, quotes and escapes included.
    mutating func string(_ text: String) {
        var text = text
        text.withUTF8 { string(utf8: UnsafeRawBufferPointer($0)) }
    }

    mutating func string(utf8 bytes: UnsafeRawBufferPointer) {
        byte(0x22)
        for c in bytes {
            if c == 0x22 || c == 0x5C {
                byte(0x5C)
                byte(c)
            } else if c < 0x20 || c == 0x7F {
                literal("\\u00")
                byte(HexDigits.digit(c >> 4))
                byte(HexDigits.digit(c & 15))
            } else {
                byte(c)
            }
        }
        byte(0x22)
    }

    /// Closes the object that was begun at the line's start with its checksum and a newline.
    ///
    /// - Parameter tail: What follows the object on its line: nothing in a journal, a comma in a checkpoint.
    @inline(__always)
    mutating func endLine(_ tail: StaticString = "") {
        closeObject()
        byte(0x7D)
        literal(tail)
        byte(0x0A)
        lineStart = count
    }

    /// Writes the checksum member without closing the object.
    @inline(__always)
    mutating func closeObject() {
        let sum = LineChecksum.of(UnsafeRawBufferPointer(start: memory + lineStart, count: count - lineStart))
        literal(",\"c\":\"")
        checksum(sum)
        byte(0x22)
    }

    @inline(__always)
    mutating func checksum(_ sum: UInt32) {
        reserve(8)
        UnsafeMutableRawPointer(memory + count).storeBytes(of: HexDigits.spell(sum.bigEndian), as: UInt64.self)
        count &+= 8
    }

    /// Marks what is written so far as complete lines of their own.
    mutating func markLineStart() { lineStart = count }
}

extension String {
    /// Its UTF-8, without a copy of the text where the text has it in one piece, as all of Swift's own have.
    @inline(__always)
    func withBytes<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R {
        if let found = utf8.withContiguousStorageIfAvailable({ body(UnsafeRawBufferPointer($0)) }) { return found }
        var text = self
        return text.withUTF8 { body(UnsafeRawBufferPointer($0)) }
    }
}
