package import TileStore

/// Which generation of a source's objects counts: raising it forgets the source with one request.
///
/// Written `<seconds>-<random>`. The greatest one counts; two authors at the same second have different ones, and all agree which
/// is the greater.
package struct Epoch: Hashable, Comparable, Sendable, CustomStringConvertible {
    /// When it began, by the bucket's clock.
    package let seconds: UInt32
    private let random: UInt32

    /// The one that every source begins with.
    package static let first = Epoch(seconds: 0, random: 0)

    package init(seconds: UInt32, random: UInt32) { (self.seconds, self.random) = (seconds, random) }

    /// - Parameter text: As ``description`` writes it, and only so.
    package init?(_ text: some StringProtocol) {
        let parts = text.split(separator: "-", omittingEmptySubsequences: false)
        guard parts.count == 2, let seconds = UInt32(parts[0]), parts[1].utf8.count == 8,
            parts[1].utf8.allSatisfy(isHexadecimal), let random = UInt32(parts[1], radix: 16)
        else { return nil }
        self.init(seconds: seconds, random: random)
        guard description == text else { return nil }
    }

    package var description: String {
        let digits = String(random, radix: 16)
        return "\(seconds)-" + String(repeating: "0", count: 8 - digits.count) + digits
    }

    package static func < (a: Epoch, b: Epoch) -> Bool { (a.seconds, a.random) < (b.seconds, b.random) }

    /// One that is greater than another, begun at a time.
    package func next(at now: Timestamp, random: UInt32) -> Epoch {
        let seconds = UInt32(clamping: now.seconds)
        // A clock that is behind must not give one that nobody heeds.
        return Epoch(seconds: max(seconds, self.seconds == .max ? .max : self.seconds + 1), random: random)
    }
}
