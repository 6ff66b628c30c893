import Foundation

/// Figures as a file.
enum Figures {
    static func write(_ figures: [Figure], to path: String) throws {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        try encoder.encode(figures).write(to: URL(fileURLWithPath: path))
    }

    static func read(_ path: String) throws -> [Figure] {
        try JSONDecoder().decode([Figure].self, from: Data(contentsOf: URL(fileURLWithPath: path)))
    }
}
