#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// How the lines of a list of tiles are written: what parts the three numbers, and in which order they come.
///
/// In the notation of tegola's `--format`: a separator, then `z`, `x` and `y` in their order.
package struct TileListFormat: Hashable, Sendable {
    fileprivate let separator: UInt8
    // The places of zoom, column and row.
    fileprivate let z: Int
    fileprivate let x: Int
    fileprivate let y: Int

    /// `z/x/y`, as osm2pgsql, render_expired, tegola and this project's own tools write it.
    package static let slashes = TileListFormat(separator: UInt8(ascii: "/"), z: 0, x: 1, y: 2)

    private init(separator: UInt8, z: Int, x: Int, y: Int) {
        (self.separator, self.z, self.x, self.y) = (separator, z, x, y)
    }

    /// Takes `/zxy`, ` xyz`, `,zxy`, and so on; `nil` for what is no format.
    package init?(_ text: String) {
        let bytes = Array(text.utf8)
        guard bytes.count == 4, bytes[0] == 0x09 || (0x20...0x7E).contains(bytes[0]),
            !TileListReader.isWord(bytes[0]), !"#.@".utf8.contains(bytes[0]),
            let z = bytes.dropFirst().firstIndex(of: UInt8(ascii: "z")),
            let x = bytes.dropFirst().firstIndex(of: UInt8(ascii: "x")),
            let y = bytes.dropFirst().firstIndex(of: UInt8(ascii: "y"))
        else { return nil }
        self.init(separator: bytes[0], z: z - 1, x: x - 1, y: y - 1)
    }

    /// An example for messages.
    fileprivate var example: String {
        var names = ["", "", ""]
        (names[z], names[x], names[y]) = ("z", "x", "y")
        return names.joined(separator: String(UnicodeScalar(separator)))
    }
}

/// A line of a list that is no tile.
package struct TileListError: Error, Hashable, Sendable {
    /// Its number, from 1 on.
    package let line: Int
    /// The line, as far as a message should show it, and what is wrong with it.
    package let message: String
}

/// Reads a list of tiles, piece by piece as it comes from a file.
///
/// A line is a tile: `z/x/y`, also with what some write behind it (`@2x`, `.png`), or a key of the source that the list is for
/// (`source/z/x/y`). Three numbers are a tile, whatever the source is named. Blanks around it, empty lines, and what follows a `#` are passed over; lines end with LF or CR LF, the last one
/// with the list too, and a byte order mark may come before the first. Everything else is an error.
///
/// Holds one line at most, and of a comment nothing.
package struct TileListReader: Sendable {
    /// A line that is no comment has so many bytes at most.
    package static let longestLine = 1024

    private let format: TileListFormat
    /// What keys of the source begin with; empty without one.
    private let prefix: [UInt8]
    /// The beginning of a line that was cut off.
    private var begun: [UInt8] = []
    /// Whether the rest of a comment is to be passed over.
    private var isInComment = false
    /// How many lines were read.
    package private(set) var lines = 0

    /// - Parameters:
    ///   - source: The name of the source that tiles may be written with.
    package init(_ format: TileListFormat = .slashes, source: String? = nil) {
        self.format = format
        prefix = source.map { Array("\($0)/".utf8) } ?? []
    }

    /// Reads the next piece.
    package mutating func read(
        _ bytes: UnsafeRawBufferPointer, into tiles: inout [PackedTile]
    ) throws(TileListError) {
        var at = 0
        if isInComment || !begun.isEmpty {
            let end = Self.lineEnd(in: bytes, from: 0)
            let part = UnsafeRawBufferPointer(rebasing: bytes[..<(end ?? bytes.count)])
            guard let end else { return try keep(part) }
            try finishLine(part, into: &tiles)
            at = end + 1
        }
        while let end = Self.lineEnd(in: bytes, from: at) {
            if let tile = try tile(in: UnsafeRawBufferPointer(rebasing: bytes[at..<end])) { tiles.append(tile) }
            lines += 1
            at = end + 1
        }
        if at < bytes.count { try keep(UnsafeRawBufferPointer(rebasing: bytes[at...])) }
    }

    /// Reads what the list ends with, if that is no line's end.
    package mutating func finish(into tiles: inout [PackedTile]) throws(TileListError) {
        guard isInComment || !begun.isEmpty else { return }
        try finishLine(UnsafeRawBufferPointer(start: nil, count: 0), into: &tiles)
    }

    private mutating func finishLine(
        _ part: UnsafeRawBufferPointer, into tiles: inout [PackedTile]
    ) throws(TileListError) {
        if !isInComment {
            begun.append(contentsOf: part)
            let line = begun
            begun.removeAll(keepingCapacity: true)
            let result = line.withUnsafeBytes { line in
                Result { () throws(TileListError) in try tile(in: line) }
            }
            if let tile = try result.get() { tiles.append(tile) }
        }
        isInComment = false
        lines += 1
    }

    /// Keeps the beginning of a line.
    private mutating func keep(_ part: UnsafeRawBufferPointer) throws(TileListError) {
        guard !isInComment else { return }
        // Of a line that is too long no more is kept than tells that.
        begun.append(contentsOf: part.prefix(Self.longestLine + 8))
        let start = begun.withUnsafeBytes { bytes in
            let line = withoutMark(bytes)
            return line.first { !Self.isBlank($0) }
        }
        if start == UInt8(ascii: "#") {
            isInComment = true
            begun.removeAll(keepingCapacity: true)
        } else if begun.count > Self.longestLine + 4 {
            throw begun.withUnsafeBytes { tooLong($0) }
        }
    }

    // MARK: A line

    private func tile(in bytes: UnsafeRawBufferPointer) throws(TileListError) -> PackedTile? {
        var line = Line(bytes: lines == 0 ? withoutMark(bytes) : bytes)
        if line.bytes.last == 0x0D { line.bytes = UnsafeRawBufferPointer(rebasing: line.bytes.dropLast()) }
        line.passBlanks()
        if !line.isAtEnd, line.bytes[line.at] == UInt8(ascii: "#") { return nil }
        guard line.bytes.count <= Self.longestLine else { throw tooLong(line.bytes) }
        if line.isAtEnd { return nil }
        if !prefix.isEmpty { line.pass(prefix, before: format.separator) }
        guard let first = line.number(), line.pass(format.separator), let second = line.number(),
            line.pass(format.separator), let third = line.number(), line.passVariant(), line.passTail()
        else { throw wrong(bytes) }
        let numbers = (first, second, third)
        let (z, x, y) = (pick(format.z, numbers), pick(format.x, numbers), pick(format.y, numbers))
        guard z <= 28 else { throw error(bytes, "zooms are 0 to 28") }
        guard x < 1 << z, y < 1 << z else {
            throw error(bytes, "columns and rows of zoom \(z) are 0 to \((1 << z) - 1)")
        }
        return PackedTile(z: z, x: x, y: y)
    }

    private func pick(_ place: Int, _ numbers: (Int, Int, Int)) -> Int {
        place == 0 ? numbers.0 : place == 1 ? numbers.1 : numbers.2
    }

    /// Reads along a line.
    private struct Line {
        var bytes: UnsafeRawBufferPointer
        var at = 0

        var isAtEnd: Bool { at == bytes.count }

        mutating func passBlanks() { while at < bytes.count, TileListReader.isBlank(bytes[at]) { at &+= 1 } }

        mutating func pass(_ byte: UInt8) -> Bool {
            guard at < bytes.count, bytes[at] == byte else { return false }
            at &+= 1
            return true
        }

        /// Passes the name of a source, unless it is the first of three numbers: a source may be named `3`.
        mutating func pass(_ prefix: [UInt8], before separator: UInt8) {
            guard bytes.count - at >= prefix.count, bytes[at..<(at + prefix.count)].elementsEqual(prefix) else {
                return
            }
            let rest = bytes[(at + prefix.count)...].prefix { !TileListReader.isBlank($0) }
            guard separator != UInt8(ascii: "/") || rest.count(where: { $0 == separator }) >= 2 else { return }
            at += prefix.count
        }

        /// Digits without needless zeros; more than nine are no number of a tile.
        mutating func number() -> Int? {
            let start = at
            var value = 0
            while at < bytes.count, at &- start < 10 {
                let digit = bytes[at] &- 0x30
                guard digit < 10 else { break }
                value = value &* 10 &+ Int(digit)
                at &+= 1
            }
            guard at > start, at == start &+ 1 || bytes[start] != 0x30 else { return nil }
            return value
        }

        /// `@2x` and `.png`, where they are.
        mutating func passVariant() -> Bool {
            if pass(UInt8(ascii: "@")) {
                guard at < bytes.count, (0x31...0x38).contains(bytes[at]) else { return false }
                at += 1
                guard pass(UInt8(ascii: "x")) else { return false }
            }
            var left = 32
            while pass(UInt8(ascii: ".")) {
                let start = at
                while at < bytes.count, left > 0, TileListReader.isWord(bytes[at]) {
                    at += 1
                    left -= 1
                }
                guard at > start else { return false }
            }
            return true
        }

        /// Blanks and a comment, where they are, and then nothing.
        mutating func passTail() -> Bool {
            let start = at
            passBlanks()
            return isAtEnd || at > start && bytes[at] == UInt8(ascii: "#")
        }
    }

    // MARK: What is wrong

    private func wrong(_ bytes: UnsafeRawBufferPointer) -> TileListError {
        error(bytes, "expected \(format.example)")
    }

    private func tooLong(_ bytes: UnsafeRawBufferPointer) -> TileListError {
        error(bytes, "the line has more than \(Self.longestLine) bytes")
    }

    private func error(_ bytes: UnsafeRawBufferPointer, _ reason: String) -> TileListError {
        let text = quoted(String(decoding: bytes.prefix(200), as: UTF8.self))
        return TileListError(line: lines + 1, message: "\(text) is no tile: \(reason)")
    }

    // MARK: Bytes

    /// A list's first line without a byte order mark.
    private func withoutMark(_ bytes: UnsafeRawBufferPointer) -> UnsafeRawBufferPointer {
        guard lines == 0, bytes.count >= 3, bytes[0] == 0xEF, bytes[1] == 0xBB, bytes[2] == 0xBF else { return bytes }
        return UnsafeRawBufferPointer(rebasing: bytes[3...])
    }

    private static func lineEnd(in bytes: UnsafeRawBufferPointer, from start: Int) -> Int? {
        guard start < bytes.count, let base = bytes.baseAddress,
            let found = memchr(base + start, 0x0A, bytes.count - start)
        else { return nil }
        return UnsafeRawPointer(found) - base
    }

    static func isBlank(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }

    /// Whether a byte is a letter or a digit.
    static func isWord(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte) || (0x41...0x5A).contains(byte)
    }
}
