/// The last part of `z/x/y[@2x][.ext]`.
struct TileFileName: Comparable {
    var row: Int
    var scale: Int
    /// In lower case, without the point; `nil` for a name without one.
    var format: String?
    /// The name on disk.
    var name: String

    /// Takes canonical names only (no signs, no leading zeros), so that two names are never one tile by accident.
    init?(_ name: String) {
        self.name = name
        var stem = name[...]
        var format: String?
        if let point = name.firstIndex(of: ".") {
            stem = name[..<point]
            var ending = name[name.index(after: point)...].lowercased()
            // The bytes tell that they are compressed.
            if ending.hasSuffix(".gz") { ending.removeLast(3) }
            guard (1...12).contains(ending.utf8.count),
                ending.utf8.allSatisfy({ (0x61...0x7A).contains($0) || (0x30...0x39).contains($0) })
            else { return nil }
            format = ending
        }
        scale = 1
        if let at = stem.firstIndex(of: "@") {
            guard stem.last == "x", let number = Self.number(stem[stem.index(after: at)...].dropLast()),
                (2...8).contains(number)
            else { return nil }
            scale = number
            stem = stem[..<at]
        }
        guard let row = Self.number(stem) else { return nil }
        self.row = row
        self.format = format
    }

    /// A plain number of at most nine digits without leading zeros.
    static func number(_ text: some StringProtocol) -> Int? {
        guard (1...9).contains(text.utf8.count), text.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
            text.utf8.count == 1 || text.first != "0"
        else { return nil }
        return Int(text)
    }

    /// In the order of their tiles; of several files of one tile, the one that comes first by format and name.
    static func < (a: TileFileName, b: TileFileName) -> Bool {
        (a.row, a.scale, a.format ?? "", a.name) < (b.row, b.scale, b.format ?? "", b.name)
    }
}
