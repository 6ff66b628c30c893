import Testing

@testable import TileCacheMapKit

@Suite(.timeLimit(.minutes(60)))
struct DotFontTests {
    private func drawing(_ text: String) -> [String] {
        let dots = Set(DotFont.dots(text))
        return (0..<DotFont.height).map { y in
            String((0..<DotFont.width(text)).map { dots.contains(.init(x: $0, y: y)) ? "#" : "." })
        }
    }

    @Test func anAddressCanBeRead() {
        #expect(
            drawing("14/7") == [
                ".#..#.#...#.###",
                "##..#.#...#...#",
                ".#..###..#...#.",
                ".#....#.#....#.",
                "###...#.#....#.",
            ])
    }

    @Test func everyLetterOfALabelHasDotsOfItsOwn() {
        let letters = "0123456789/@x"
        #expect(Set(letters.map { DotFont.dots(String($0)) }).count == letters.count)
        #expect(letters.allSatisfy { !DotFont.dots(String($0)).isEmpty })
        #expect(DotFont.dots("é ").isEmpty && DotFont.width("") == 0)
    }
}
