/// What is wrong with an archive: how much, and the first of it in words.
///
/// A small file can have billions of wrong tiles.
package struct ArchiveProblems: Sendable {
    /// How many there are.
    package private(set) var count = 0
    /// The first of them, one line each.
    package private(set) var lines: [String] = []
    /// So many are kept in words.
    package static let mostLines = 1000

    package init() {}

    package var isEmpty: Bool { count == 0 }

    package mutating func add(_ line: @autoclosure () -> String) {
        count += 1
        if lines.count < Self.mostLines { lines.append(line()) }
    }
}
