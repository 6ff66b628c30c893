package import TileStore

/// How far the bucket's clock was ahead of this machine's before this machine's clock was set back: for tiles that were stored until then.
///
/// A value without a clock.
package struct FormerOffsets: Equatable, Sendable {
    /// What was stored until a time may have been stored while the bucket's clock was only so far ahead.
    package struct Period: Equatable, Sendable {
        /// By this machine's clock.
        package let until: Timestamp
        package let offset: ClockOffset
    }

    /// In the order of their times, and of their offsets too: one that is over sooner counts only if its offset is smaller.
    package private(set) var periods: [Period] = []

    /// There are at most so many; of more the nearest are joined, which makes tiles seem older and never newer.
    package static let most = 16

    package init() {}

    /// Takes note of an offset that was valid until a time.
    package mutating func note(_ offset: ClockOffset, until: Timestamp) {
        guard !includes(offset, until: until, within: 0) else { return }
        periods.removeAll { $0.until <= until && $0.offset.seconds >= offset.seconds }
        let place = periods.firstIndex { $0.until > until } ?? periods.endIndex
        periods.insert(Period(until: until, offset: offset), at: place)
        while periods.count > Self.most { joinNearest() }
    }

    /// The smallest offset that a tile may have been stored at; `nil` if it was stored after all periods.
    package func least(at storedAt: Timestamp) -> ClockOffset? { periods.first { $0.until >= storedAt }?.offset }

    /// Whether all that counts beside an offset of today is said by another one too, but for a few seconds.
    ///
    /// Times are told in whole seconds, so offsets that differ by one or two come and go all the time.
    func isSaid(by other: FormerOffsets, today: ClockOffset) -> Bool {
        periods.allSatisfy { period in
            period.offset.seconds + Marks.slack >= today.seconds
                || other.includes(period.offset, until: period.until, within: Marks.slack)
        }
    }

    private func includes(_ offset: ClockOffset, until: Timestamp, within seconds: Int64) -> Bool {
        periods.contains {
            $0.until.adding(seconds: seconds) >= until && $0.offset.seconds <= offset.seconds + seconds
        }
    }

    private mutating func joinNearest() {
        func cost(_ index: Int) -> Int64 {
            let (a, b) = (periods[index], periods[index + 1])
            return (b.offset.seconds - a.offset.seconds)
                .multipliedReportingOverflow(by: b.until.seconds - a.until.seconds).partialValue
        }
        guard let index = periods.indices.dropLast().min(by: { cost($0) < cost($1) }) else { return }
        let joined = Period(until: periods[index + 1].until, offset: periods[index].offset)
        periods.replaceSubrange(index...index + 1, with: [joined])
    }
}
