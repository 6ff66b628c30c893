import TileStore

extension URLTemplate {
    /// Which tile's URL that is; `nil` if it is none of this template's.
    ///
    /// The inverse of ``url(for:)``, but for the host: every subdomain's URL is that of its tile. Whole numbers must be written as
    /// ``url(for:)`` writes them, those of a box as any program may; what need not be percent-encoded may be. Costs a few steps
    /// for each piece of the template.
    /// - Parameters:
    ///   - scheme: The URL's scheme.
    ///   - authority: Its host, with the port where one is given.
    ///   - path: Its path with the query, as a request line has it.
    ///   - format: The format that the tile's address is to have.
    func tile(_ scheme: TileURL.Scheme, authority: String, path: String, format: String?) -> TileAddress? {
        guard scheme == self.scheme, authorities.contains(where: { Self.isSame($0, authority, scheme) }) else {
            return nil
        }
        var matcher = Matcher(text: Matcher.normalized(path.utf8, inQuery: false), format: format)
        return matcher.matches(self, pieces[...], at: 0) ? matcher.tile : nil
    }

    private static func isSame(_ one: String, _ other: String, _ scheme: TileURL.Scheme) -> Bool {
        func full(_ authority: String) -> String {
            let port = scheme == .https ? ":443" : ":80"
            let text = authority.lowercased()
            return text.hasSuffix(port) ? String(text.dropLast(port.count)) : text
        }
        return full(one) == full(other)
    }
}

/// Reads a path by a template's pieces, and takes a step back where a number could end sooner.
private struct Matcher {
    private let text: [UInt8]
    private let format: String?
    private var found = Found()

    /// What has been read so far.
    private struct Found {
        var z, x, y, tmsRow, scale: Int?
        var quadkey, box: String?
    }

    init(text: [UInt8], format: String?) {
        self.text = text
        self.format = format
    }

    mutating func matches(_ template: URLTemplate, _ pieces: ArraySlice<URLTemplate.Piece>, at start: Int) -> Bool {
        guard let piece = pieces.first else { return start == text.count && tile != nil }
        let rest = pieces.dropFirst()
        switch piece {
        case .literal(let range):
            let inQuery = text[..<start].contains(UInt8(ascii: "?"))
            let literal = Self.normalized(template.bytes(of: range), inQuery: inQuery)
            return text[start...].starts(with: literal) && matches(template, rest, at: start + literal.count)
        case .subdomain:
            return template.choices.contains { choice in
                text[start...].starts(with: choice.utf8) && matches(template, rest, at: start + choice.utf8.count)
            }
        case .retina:
            if attempt({ $0.note(\.scale, 1) && $0.matches(template, rest, at: start) }) { return true }
            guard text[start...].starts(with: "@".utf8), start + 2 < text.count, text[start + 2] == UInt8(ascii: "x"),
                let scale = number(start + 1, start + 2), scale > 1
            else { return false }
            return attempt { $0.note(\.scale, scale) && $0.matches(template, rest, at: start + 3) }
        case .zoom: return matchesNumber(\.z, 2, template, rest, at: start)
        case .column: return matchesNumber(\.x, 9, template, rest, at: start)
        case .row: return matchesNumber(\.y, 9, template, rest, at: start)
        case .tmsRow: return matchesNumber(\.tmsRow, 9, template, rest, at: start)
        case .scale: return matchesNumber(\.scale, 1, template, rest, at: start)
        case .quadkey:
            return matchesText(\.quadkey, 28, template, rest, at: start) { (0x30...0x33).contains($0) }
        case .box:
            return matchesText(\.box, 4 * 26, template, rest, at: start) { "0123456789.,-+e".utf8.contains($0) }
        }
    }

    /// The text without the percent-encoding that changes nothing (RFC 3986, section 6.2.2).
    ///
    /// Encoded stays what would be a separator if it were not.
    static func normalized(_ text: some Sequence<UInt8>, inQuery: Bool) -> [UInt8] {
        var (result, inQuery) = ([UInt8](), inQuery)
        var rest = Array(text)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "?") { inQuery = true }
            // Two digits: with a sign before one of them it would be a number, too.
            guard byte == UInt8(ascii: "%"), rest.count >= 2, rest.first != UInt8(ascii: "+"),
                rest.first != UInt8(ascii: "-"),
                let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16)
            else {
                result.append(byte)
                continue
            }
            let separators: StaticString = inQuery ? "&#+%" : "/?#%"
            if separators.withUTF8Buffer({ $0.contains(value) }) {
                result.append(byte)
                result += String(decoding: rest.prefix(2), as: UTF8.self).uppercased().utf8
            } else {
                result.append(value)
            }
            rest = rest.dropFirst(2)
        }
        return result
    }

    /// Digits, as many as there are, or fewer where what follows wants some of them.
    private mutating func matchesNumber(
        _ member: WritableKeyPath<Found, Int?>, _ most: Int, _ template: URLTemplate,
        _ rest: ArraySlice<URLTemplate.Piece>, at start: Int
    ) -> Bool {
        var end = start
        while end < text.count, end - start < most, (0x30...0x39).contains(text[end]) { end += 1 }
        while end > start {
            if let value = number(start, end),
                attempt({ $0.note(member, value) && $0.matches(template, rest, at: end) })
            {
                return true
            }
            end -= 1
        }
        return false
    }

    private mutating func matchesText(
        _ member: WritableKeyPath<Found, String?>, _ most: Int, _ template: URLTemplate,
        _ rest: ArraySlice<URLTemplate.Piece>, at start: Int, _ belongs: (UInt8) -> Bool
    ) -> Bool {
        var end = start
        while end < text.count, end - start < most, belongs(text[end]) { end += 1 }
        while end >= start {
            let value = String(decoding: text[start..<end], as: UTF8.self)
            if attempt({ $0.note(member, value) && $0.matches(template, rest, at: end) }) { return true }
            end -= 1
        }
        return false
    }

    /// A number without leading zeros.
    private func number(_ start: Int, _ end: Int) -> Int? {
        guard end - start == 1 || text[start] != 0x30 else { return nil }
        return Int(String(decoding: text[start..<end], as: UTF8.self))
    }

    /// Notes what a placeholder stands for; `false` if it stood for something else before.
    private mutating func note<V: Equatable>(_ member: WritableKeyPath<Found, V?>, _ value: V) -> Bool {
        if let other = found[keyPath: member] { return other == value }
        found[keyPath: member] = value
        return true
    }

    /// Tries a way, and forgets what was found on it if it leads nowhere.
    private mutating func attempt(_ way: (inout Matcher) -> Bool) -> Bool {
        let before = found
        if way(&self) { return true }
        found = before
        return false
    }

    /// The tile, if all that was found is about the same one.
    var tile: TileAddress? {
        let scale = found.scale ?? 1
        let candidate: TileAddress? =
            if let z = found.z, let x = found.x, let y = found.y {
                try? TileAddress(z: z, x: x, y: y, scale: scale, format: format)
            } else if let z = found.z, (0...28).contains(z), let x = found.x, let row = found.tmsRow {
                try? TileAddress(z: z, x: x, tmsRow: row, scale: scale, format: format)
            } else if let quadkey = found.quadkey {
                try? TileAddress(quadkey: quadkey, scale: scale, format: format)
            } else {
                found.box.flatMap { TileAddress.covering($0, scale, format) }
            }
        guard let tile = candidate, found.z ?? tile.z == tile.z, found.x ?? tile.x == tile.x,
            found.y ?? tile.y == tile.y, found.tmsRow ?? tile.tmsRow == tile.tmsRow,
            found.quadkey ?? tile.quadkey == tile.quadkey,
            found.box.map({ tile.mercatorBox.isWritten($0) }) ?? true
        else { return nil }
        return tile
    }
}

extension TileAddress {
    /// The tile whose box in metres is written so, or one near it.
    fileprivate static func covering(_ box: String, _ scale: Int, _ format: String?) -> TileAddress? {
        guard let sides = MercatorBox.sides(box) else { return nil }
        let share = 2 * MercatorPoint.extent / (sides[2] - sides[0])
        guard share >= 0.75, share < Double(1 << 28) * 1.5 else { return nil }
        let z = share.exponentOfNearest
        // By the share of the whole: the width of a small tile has too few digits.
        let x = ((sides[0] / MercatorPoint.extent + 1) * Double(1 << z) / 2).rounded()
        let y = ((1 - sides[3] / MercatorPoint.extent) * Double(1 << z) / 2).rounded()
        let inside = 0..<Double(1 << z)
        guard inside.contains(x), inside.contains(y) else { return nil }
        return try? TileAddress(z: z, x: Int(x), y: Int(y), scale: scale, format: format)
    }
}

extension MercatorBox {
    /// The four numbers of a box that is not empty.
    fileprivate static func sides(_ text: String) -> [Double]? {
        let sides = text.split(separator: ",", omittingEmptySubsequences: false).compactMap { Double($0) }
        guard sides.count == 4, sides.allSatisfy(\.isFinite), sides[2] > sides[0], sides[3] > sides[1] else {
            return nil
        }
        return sides
    }

    /// Whether the text is this box, as a program writes it that computes and rounds in its own way.
    fileprivate func isWritten(_ text: String) -> Bool {
        guard let sides = Self.sides(text) else { return false }
        let tolerance = (east - west) / 1024
        return zip(sides, [west, south, east, north]).allSatisfy { abs($0 - $1) <= tolerance }
    }
}

extension Double {
    /// The power of two that is nearest; of a number that is neither small nor large.
    fileprivate var exponentOfNearest: Int { significand >= 1.5 ? Int(exponent) + 1 : Int(exponent) }
}
