/// Letters made of dots, for labels that need no font and no text system: the address of a tile, say.
///
/// Each is three dots wide and five high, with one dot between two.
enum DotFont {
    /// Rows from the top, three bits each, the leftmost highest.
    private static let letters: [Character: [UInt8]] = [
        "0": [7, 5, 5, 5, 7], "1": [2, 6, 2, 2, 7], "2": [7, 1, 7, 4, 7], "3": [7, 1, 3, 1, 7],
        "4": [5, 5, 7, 1, 1], "5": [7, 4, 7, 1, 7], "6": [7, 4, 7, 5, 7], "7": [7, 1, 2, 2, 2],
        "8": [7, 5, 7, 5, 7], "9": [7, 5, 7, 1, 7], "/": [1, 1, 2, 4, 4], "@": [7, 5, 7, 4, 7],
        "x": [0, 5, 2, 5, 0],
    ]

    /// A dot's place, in dots from the upper left.
    struct Dot: Hashable {
        var x, y: Int
    }

    /// The width of a text in dots.
    static func width(_ text: String) -> Int { max(0, text.count * 4 - 1) }
    static let height = 5

    /// The dots of a text; letters that there are none of are blank.
    static func dots(_ text: String) -> [Dot] {
        var dots: [Dot] = []
        for (place, letter) in text.enumerated() {
            for (y, row) in (letters[letter] ?? []).enumerated() {
                for x in 0..<3 where row >> UInt8(2 - x) & 1 == 1 { dots.append(Dot(x: place * 4 + x, y: y)) }
            }
        }
        return dots
    }
}
