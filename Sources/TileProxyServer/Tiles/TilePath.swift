import HTTPListener
import HTTPWire
import NIOCore

/// What a path below `/tiles/` asks for, read from its bytes without making texts of them.
enum TileTarget: Hashable {
    /// A tile.
    case tile(TilePath)
    /// The description of a source; where its name stands.
    case description(Range<Int>)
    /// Nothing that there could be.
    case nothing

    static let prefix: StaticString = "/tiles/"

    /// Whether a path is one for tiles.
    @inline(__always)
    static func owns(_ path: UnsafeRawBufferPointer) -> Bool {
        path.count > 7 && path.begins(with: prefix)
    }

    /// The longest name of a source, and of a version of it: `NAME@ID`.
    private static let longestName = 64 + 1 + 64

    /// Reads `/tiles/NAME/{z}/{x}/{y}[@2x][.ext]` or `/tiles/NAME.json`.
    ///
    /// Each tile has one spelling: no leading zeros, no signs, no blanks.
    init(_ path: UnsafeRawBufferPointer) {
        self = .nothing
        guard Self.owns(path) else { return }
        var at = 7
        while at < path.count, path[at] != 47 { at += 1 }
        let name = 7..<at
        guard (1...Self.longestName + 5).contains(name.count) else { return }
        guard at < path.count else {
            guard name.count > 5, path.part(at - 5, at).equals(lowercase: ".json") else { return }
            self = .description(7..<(at - 5))
            return
        }
        at += 1
        guard let z = Self.number(path, &at), Self.skip(path, &at, 47), let x = Self.number(path, &at),
            Self.skip(path, &at, 47), let y = Self.number(path, &at)
        else { return }
        var tile = TilePath(source: name, z: z, x: x, y: y)
        if at < path.count, path[at] == 64 {
            guard at + 2 < path.count, (50...56).contains(path[at + 1]), path[at + 2] == 120 else { return }
            tile.scale = Int(path[at + 1] - 48)
            at += 3
        }
        if at < path.count, path[at] == 46 {
            let start = at + 1
            at = start
            while at < path.count, isExtensionByte(path[at]) { at += 1 }
            guard (1...12).contains(at - start) else { return }
            tile.format = start..<at
        }
        if at == path.count { self = .tile(tile) }
    }

    @inline(__always)
    private static func number(_ path: UnsafeRawBufferPointer, _ at: inout Int) -> Int? {
        let start = at
        var value = 0
        while at < path.count, path[at].isDigit {
            value = value &* 10 &+ Int(path[at] &- 48)
            at += 1
            if at - start > 9 { return nil }
        }
        guard at > start, at == start + 1 || path[start] != 48 else { return nil }
        return value
    }

    @inline(__always)
    private static func skip(_ path: UnsafeRawBufferPointer, _ at: inout Int, _ byte: UInt8) -> Bool {
        guard at < path.count, path[at] == byte else { return false }
        at += 1
        return true
    }
}

/// A tile as a path names it; not yet known to exist.
struct TilePath: Hashable {
    /// Where the source's name stands.
    var source: Range<Int>
    var z: Int
    var x: Int
    var y: Int
    var scale = 1
    /// Where the extension stands, without its dot.
    var format: Range<Int>?
}

extension UnsafeRawBufferPointer {
    /// Whether it begins with a text, letter by letter.
    @inline(__always)
    func begins(with text: StaticString) -> Bool {
        guard count >= text.utf8CodeUnitCount else { return false }
        for i in 0..<text.utf8CodeUnitCount where self[i] != text.utf8Start[i] { return false }
        return true
    }
}

extension RequestHead {
    /// Runs a body on the bytes of the path alone: tile routes know no query.
    @inline(__always)
    func withPathBytes<R>(_ body: (UnsafeRawBufferPointer) -> R) -> R {
        fields.bytes.withUnsafeReadableBytes { body($0.part(pathRange.lowerBound, pathRange.upperBound)) }
    }
}
