/// Numbers as people read them.
enum Figure {
    /// `12,345`.
    static func count(_ number: Int) -> String {
        let digits = String(number.magnitude)
        var text = ""
        for (i, digit) in digits.enumerated() {
            if i > 0, (digits.count - i).isMultiple(of: 3) { text.append(",") }
            text.append(digit)
        }
        return number < 0 ? "-" + text : text
    }

    /// `1 tile`, `2 tiles`.
    static func count(_ number: Int, _ noun: String, _ plural: String? = nil) -> String {
        "\(count(number)) \(number == 1 ? noun : plural ?? noun + "s")"
    }

    /// `103 B`, `4.1 kB`, `12.3 MB`: powers of 1000, as `200MB` on the command line.
    static func size(_ bytes: Int) -> String {
        guard bytes >= 1000 else { return "\(bytes) B" }
        let units = ["kB", "MB", "GB", "TB", "PB", "EB"]
        var tenths = bytes / 100 + (bytes % 100 >= 50 ? 1 : 0)
        var unit = 0
        while tenths >= 10_000, unit < units.count - 1 {
            tenths = tenths / 1000 + (tenths % 1000 >= 500 ? 1 : 0)
            unit += 1
        }
        return "\(count(tenths / 10)).\(tenths % 10) \(units[unit])"
    }

    /// `12.3 %`; nothing of nothing is 0.
    static func percent(_ part: Int, of whole: Int) -> String {
        guard whole > 0 else { return "0.0 %" }
        return "\(decimal(Double(part) / Double(whole) * 100, 1)) %"
    }

    /// A number with so many decimals.
    static func decimal(_ value: Double, _ places: Int) -> String {
        let scale = places == 1 ? 10.0 : 100.0
        let scaled = (value * scale).rounded()
        guard abs(scaled) < 1e15 else { return String(value) }
        let (whole, rest) = Int(scaled).quotientAndRemainder(dividingBy: Int(scale))
        let digits = String(rest.magnitude)
        return "\(whole)." + String(repeating: "0", count: places - digits.count) + digits
    }
}

extension String {
    /// Filled with spaces on its left.
    func right(_ width: Int) -> String { String(repeating: " ", count: max(0, width - count)) + self }

    /// Filled with spaces on its right.
    func left(_ width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }

    /// With control characters made visible: a server's header must not drive the user's terminal.
    ///
    /// Those too that turn the direction of writing, which would make a line look like another one.
    var printable: String {
        var text = ""
        for scalar in unicodeScalars {
            let isControl = scalar.value < 32 || (127..<160).contains(scalar.value)
            let turns = (0x202A...0x202E).contains(scalar.value) || (0x2066...0x2069).contains(scalar.value)
            if isControl || turns {
                text += "\\u{\(String(scalar.value, radix: 16))}"
            } else {
                text.unicodeScalars.append(scalar)
            }
        }
        return text
    }
}
