/// Takes a template apart, once.
struct URLTemplateParser {
    struct Result {
        var scheme: TileURL.Scheme
        var authorities: [String] = []
        var hosts: [String] = []
        var literals: [UInt8] = []
        var pieces: [URLTemplate.Piece] = []
    }

    /// A byte of the template, or a placeholder, and where it is.
    private enum Token {
        case byte(UInt8, at: Int)
        case placeholder(String, at: Int)

        var offset: Int {
            switch self {
            case .byte(_, let offset), .placeholder(_, let offset): offset
            }
        }
    }

    private static let builtIn: [String: URLTemplate.Piece] = [
        "z": .zoom, "x": .column, "y": .row, "-y": .tmsRow, "q": .quadkey, "bbox-epsg-3857": .box, "scale": .scale,
        "r": .retina, "s": .subdomain,
    ]

    private let text: [UInt8]
    private let subdomains: [String]
    private let values: [String: String]
    private let isOneFile: Bool
    private var used: Set<String> = []

    /// - Parameter isOneFile: Whether it is the URL of one file, which has all tiles.
    static func parse(
        _ template: String, subdomains: [String], values: [String: String], isOneFile: Bool = false
    ) throws(URLTemplateError) -> Result {
        var parser = URLTemplateParser(
            text: Array(template.utf8), subdomains: subdomains, values: values, isOneFile: isOneFile)
        return try parser.parse()
    }

    private init(text: [UInt8], subdomains: [String], values: [String: String], isOneFile: Bool) {
        self.text = text
        self.isOneFile = isOneFile
        self.subdomains = subdomains
        self.values = values
    }

    private func error(_ offset: Int, _ message: String) -> URLTemplateError {
        URLTemplateError(position: String(decoding: text.prefix(offset), as: UTF8.self).count + 1, message)
    }

    private mutating func parse() throws(URLTemplateError) -> Result {
        guard text.count <= 8192 else { throw URLTemplateError("it is longer than 8192 bytes") }
        try checkArguments()
        let (scheme, start) = try parseScheme()
        let tokens = try tokenize(from: start)
        let pathStart = tokens.firstIndex { token in
            if case .byte(let byte, _) = token { byte == UInt8(ascii: "/") || byte == UInt8(ascii: "?") } else { false }
        }
        var result = Result(scheme: scheme)
        try parseAuthority(tokens[..<(pathStart ?? tokens.count)], at: start, &result)
        guard let pathStart else {
            throw error(text.count, "there is no path with {z}, {x} and {y} behind the host")
        }
        try parsePath(tokens[pathStart...], &result)
        try checkUse()
        return result
    }

    // MARK: What is given besides the template

    private func checkArguments() throws(URLTemplateError) {
        guard subdomains.count <= 64 else { throw URLTemplateError("there are more than 64 subdomains") }
        for subdomain in subdomains {
            guard (1...63).contains(subdomain.utf8.count), subdomain.utf8.allSatisfy(isHostByte),
                !subdomain.hasPrefix("."), !subdomain.hasSuffix("."), !subdomain.contains("..")
            else {
                throw URLTemplateError("a subdomain must be 1 to 63 characters of A-Z a-z 0-9 - _ .")
            }
        }
        for (name, value) in values {
            guard (1...64).contains(name.utf8.count), name.utf8.allSatisfy(isNameByte) else {
                throw URLTemplateError("the name of a value must be 1 to 64 characters of A-Z a-z 0-9 . _ -")
            }
            guard Self.builtIn[name] == nil else {
                throw URLTemplateError("{\(name)} has a meaning of its own: give the value another name")
            }
            guard value.utf8.count <= 8192 else {
                throw URLTemplateError("the value of {\(name)} is longer than 8192 bytes")
            }
            guard !value.utf8.contains(where: { $0 < 0x20 || $0 == 0x7F }) else {
                throw URLTemplateError("the value of {\(name)} has control characters")
            }
        }
    }

    private func checkUse() throws(URLTemplateError) {
        let has = { (names: String...) in names.allSatisfy(used.contains) }
        if isOneFile {
            if let name = used.sorted().first(where: { Self.builtIn[$0] != nil }) {
                throw URLTemplateError("{\(name)} has no place in the URL of an archive, which has all tiles")
            }
        } else if !(has("q") || has("bbox-epsg-3857") || has("z", "x", "y") || has("z", "x", "-y")) {
            let missing = ["z", "x", "y"].filter { !used.contains($0) && !($0 == "y" && used.contains("-y")) }
            throw URLTemplateError(
                "\(missing.map { "{\($0)}" }.joined(separator: ", ")) missing: tiles need {z}, {x} and {y} (or {-y}), or "
                    + "{q}, or {bbox-epsg-3857}")
        }
        guard subdomains.isEmpty || used.contains("s") else {
            throw URLTemplateError("there are subdomains, but no {s} in the template")
        }
        if let name = values.keys.sorted().first(where: { !used.contains($0) }) {
            throw URLTemplateError("there is a value for {\(name)}, but no {\(name)} in the template")
        }
    }

    // MARK: Scheme and tokens

    private func parseScheme() throws(URLTemplateError) -> (TileURL.Scheme, Int) {
        let wanted = "expected a template such as https://example.org/{z}/{x}/{y}.png"
        guard let colon = text.firstIndex(of: UInt8(ascii: ":")), text[colon...].starts(with: "://".utf8) else {
            throw error(0, "\(wanted) (schemes are http, https and file)")
        }
        let name = String(decoding: text[..<colon], as: UTF8.self).lowercased()
        guard let scheme = TileURL.Scheme(rawValue: name) else {
            throw error(0, "\(wanted): the scheme must be http, https or file")
        }
        return (scheme, colon + 3)
    }

    private mutating func tokenize(from start: Int) throws(URLTemplateError) -> [Token] {
        var tokens: [Token] = []
        var offset = start
        while offset < text.count {
            let byte = text[offset]
            switch byte {
            case UInt8(ascii: "{"):
                let rest = text[(offset + 1)...]
                guard let end = rest.firstIndex(where: { $0 == UInt8(ascii: "}") || $0 == UInt8(ascii: "{") }),
                    text[end] == UInt8(ascii: "}")
                else { throw error(offset, "this { has no }") }
                let name = String(decoding: text[(offset + 1)..<end], as: UTF8.self)
                guard Self.builtIn[name] != nil || values[name] != nil else { throw unknown(name, at: offset) }
                used.insert(name)
                if name == "s", subdomains.isEmpty {
                    throw error(offset, "{s} needs subdomains, and there are none")
                }
                tokens.append(.placeholder(name, at: offset))
                offset = end + 1
                continue
            case UInt8(ascii: "}"): throw error(offset, "this } has no {")
            case UInt8(ascii: "#"): throw error(offset, "a fragment (#) is never sent to a server: leave it out")
            case 0x20, 0x09, 0x0A, 0x0D: throw error(offset, "white space: leave it out, or write %20")
            case 0..<0x20, 0x7F: throw error(offset, "a control character")
            case UInt8(ascii: "%"):
                guard offset + 2 < text.count, isHexDigit(text[offset + 1]), isHexDigit(text[offset + 2]) else {
                    throw error(offset, "% must be followed by two hexadecimal digits: write %25 for a percent sign")
                }
                tokens.append(.byte(byte, at: offset))
            default: tokens.append(.byte(byte, at: offset))
            }
            offset += 1
        }
        return tokens
    }

    private func unknown(_ name: String, at offset: Int) -> URLTemplateError {
        let shown = name.utf8.count <= 64 && name.utf8.allSatisfy(isNameByte) ? "{\(name)}" : "this"
        let known = Self.builtIn.keys.sorted().map { "{\($0)}" }.joined(separator: " ")
        return error(offset, "\(shown) is no known placeholder (\(known)) and no value was given for it")
    }

    // MARK: Authority

    private func parseAuthority(
        _ tokens: ArraySlice<Token>, at start: Int, _ result: inout Result
    ) throws(URLTemplateError) {
        var parts: [String] = [""]
        for token in tokens {
            switch token {
            case .byte(UInt8(ascii: "@"), let offset):
                throw error(offset, "no user name or password here: give an Authorization header to the source instead")
            case .byte(let byte, let offset):
                guard byte < 0x80 else {
                    throw error(offset, "a host's name is written in ASCII here: use its xn-- form")
                }
                guard
                    isHostByte(byte) || byte == UInt8(ascii: ":") || byte == UInt8(ascii: "[")
                        || byte == UInt8(ascii: "]")
                else { throw error(offset, "this character cannot be in a host's name") }
                for index in parts.indices { parts[index].unicodeScalars.append(Unicode.Scalar(byte)) }
            case .placeholder("s", _):
                // Every {s} of a URL is the same subdomain.
                if parts.count == 1 { parts = Array(repeating: parts[0], count: subdomains.count) }
                for (index, subdomain) in subdomains.enumerated() { parts[index] += subdomain }
            case .placeholder(let name, let offset):
                guard let value = values[name] else {
                    throw error(offset, "{\(name)} cannot be in the host: only {s} and values can")
                }
                guard !value.isEmpty, value.utf8.allSatisfy(isHostByte) else {
                    throw error(offset, "the value of {\(name)} cannot be part of a host's name")
                }
                for index in parts.indices { parts[index] += value }
            }
        }
        if result.scheme == .file {
            guard parts.allSatisfy({ $0.isEmpty || $0.lowercased() == "localhost" }) else {
                throw error(start, "a file is on this computer: file:///path/{z}/{x}/{y}.png, with three slashes")
            }
            result.authorities = [""]
            return
        }
        for part in parts {
            let authority = part.lowercased()
            let host = try host(of: authority, at: start)
            result.authorities.append(authority)
            if !result.hosts.contains(host) { result.hosts.append(host) }
        }
    }

    /// The host of an authority, without the port and without the dot that a full name may end with.
    private func host(of authority: String, at start: Int) throws(URLTemplateError) -> String {
        var (host, port): (Substring, Substring?) = (authority[...], nil)
        if authority.hasPrefix("[") {
            guard let end = authority.firstIndex(of: "]") else { throw error(start, "the [ of the host has no ]") }
            let rest = authority[authority.index(after: end)...]
            guard rest.isEmpty || rest.hasPrefix(":") else { throw error(start, "there is more behind the host's ]") }
            let address = authority[..<end].dropFirst()
            guard address.contains(":"), address.allSatisfy({ $0.isHexDigit || $0 == ":" || $0 == "." }) else {
                throw error(start, "what is in [ ] is no IPv6 address")
            }
            host = authority[...end]
            port = rest.isEmpty ? nil : rest.dropFirst()
        } else {
            if let colon = authority.firstIndex(of: ":") {
                host = authority[..<colon]
                port = authority[authority.index(after: colon)...]
            }
            if host.hasSuffix(".") { host = host.dropLast() }
            guard !host.isEmpty else { throw error(start, "there is no host") }
            let labels = host.split(separator: ".", omittingEmptySubsequences: false)
            guard host.utf8.count <= 253, labels.allSatisfy({ (1...63).contains($0.utf8.count) }),
                host.utf8.allSatisfy(isHostByte)
            else { throw error(start, "this is no host's name") }
        }
        if let port {
            guard (1...5).contains(port.utf8.count), port.utf8.allSatisfy({ (0x30...0x39).contains($0) }),
                let number = Int(port), (1...65535).contains(number)
            else { throw error(start, "the port must be a number from 1 to 65535") }
        }
        return String(host)
    }

    // MARK: Path and query

    private func parsePath(_ tokens: ArraySlice<Token>, _ result: inout Result) throws(URLTemplateError) {
        let isFile = result.scheme == .file
        var open = result.literals.count
        func close(_ result: inout Result) {
            if open < result.literals.count { result.pieces.append(.literal(open..<result.literals.count)) }
            open = result.literals.count
        }
        // A URL may go on with its query right behind the host, a request line may not.
        if case .byte(UInt8(ascii: "?"), _) = tokens.first { result.literals.append(UInt8(ascii: "/")) }
        /// What is known of the path's current segment; `nil` in the query.
        var segment: [UInt8]? = []
        var index = tokens.startIndex
        while index < tokens.endIndex {
            let token = tokens[index]
            index += 1
            switch token {
            case .byte(UInt8(ascii: "?"), let offset) where isFile:
                throw error(offset, "a file has no query: write %3F for a question mark in its name")
            case .byte(UInt8(ascii: "%"), let offset) where isFile:
                // The template is a URL, the path is not: this is the one place where it is decoded.
                guard let byte = UInt8(String(decoding: text[(offset + 1)...(offset + 2)], as: UTF8.self), radix: 16),
                    byte != 0, byte != UInt8(ascii: "/")
                else { throw error(offset, "this cannot be in a file's name") }
                index += 2
                result.literals.append(byte)
                segment?.append(byte)
            case .byte(let byte, let offset):
                let isEnd = byte == UInt8(ascii: "/") || byte == UInt8(ascii: "?")
                if isEnd, segment != nil {
                    try check(segment, at: offset)
                    segment = byte == UInt8(ascii: "?") ? nil : []
                } else {
                    segment?.append(byte)
                }
                if isFile || isURLByte(byte) { result.literals.append(byte) } else { encode(byte, &result.literals) }
            case .placeholder(let name, let offset):
                if let value = values[name] {
                    if isFile, value.utf8.contains(where: { $0 == UInt8(ascii: "/") || $0 == 0 }) {
                        throw error(offset, "the value of {\(name)} has a slash, which would name another folder")
                    }
                    for byte in value.utf8 {
                        if byte == UInt8(ascii: "/"), segment != nil {
                            try check(segment, at: offset)
                            segment = []
                        } else {
                            segment?.append(byte)
                        }
                        if isFile || isUnreserved(byte) || byte == UInt8(ascii: "/") {
                            result.literals.append(byte)
                        } else {
                            encode(byte, &result.literals)
                        }
                    }
                } else if let piece = Self.builtIn[name] {
                    close(&result)
                    result.pieces.append(piece)
                    // {r} may be empty, so what is around it may still be nothing but dots.
                    if piece != .retina { segment?.append(UInt8(ascii: "0")) }
                }
            }
        }
        try check(segment, at: text.count)
        close(&result)
    }

    /// Refuses `.` and `..`, however they are written: what a template names must be what is asked for.
    private func check(_ segment: [UInt8]?, at offset: Int) throws(URLTemplateError) {
        guard let segment, segment.count <= 6 else { return }
        let plain = String(decoding: segment, as: UTF8.self).lowercased()
            .split(separator: "%2e", omittingEmptySubsequences: false).joined(separator: ".")
        if plain == "." || plain == ".." {
            throw error(max(0, offset - 1), "a path must not have . or .. between its slashes, in values neither")
        }
    }

    private func encode(_ byte: UInt8, _ literals: inout [UInt8]) {
        let digits = Array("0123456789ABCDEF".utf8)
        literals += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
    }
}

private func isDigit(_ b: UInt8) -> Bool { (0x30...0x39).contains(b) }
private func isLetter(_ b: UInt8) -> Bool { (0x61...0x7A).contains(b | 0x20) }
private func isHexDigit(_ b: UInt8) -> Bool { isDigit(b) || (0x61...0x66).contains(b | 0x20) }
private func isNameByte(_ b: UInt8) -> Bool {
    isDigit(b) || isLetter(b) || b == UInt8(ascii: "-") || b == UInt8(ascii: "_") || b == UInt8(ascii: ".")
}
private func isHostByte(_ b: UInt8) -> Bool { isNameByte(b) }
/// RFC 3986, section 2.3.
private func isUnreserved(_ b: UInt8) -> Bool { isNameByte(b) || b == UInt8(ascii: "~") }
/// What a path or a query may hold as it is (RFC 3986, sections 3.3 and 3.4), and percent signs.
private func isURLByte(_ b: UInt8) -> Bool { isUnreserved(b) || "!$&'()*+,;=:@/?%".utf8.contains(b) }
