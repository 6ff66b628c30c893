package import TileStore

/// What a fleet knows to be stale: the index object of a prefix, which every node reads every few seconds.
///
/// Marks are added and never taken away before they have outlived what they are about, so any order of adding comes to the same:
/// ``merged(_:at:)`` loses nothing.
package struct Marks: Equatable, Sendable {
    /// The epochs of sources that have left the first one, by the sources' names.
    package private(set) var epochs: [SourceName: Epoch] = [:]
    /// The marks, in a fixed order.
    package private(set) var list: [Mark] = []
    /// What was asked for before this time is stale, of whatever source.
    package private(set) var floor = Timestamp.distantPast
    /// The time of the latest mark: what was asked for later than ``slack`` seconds after it is marked by none.
    package private(set) var latest = Timestamp.distantPast

    /// There are at most so many marks; of more the nearest are made one that is wider.
    package static let mostMarks = 1000
    /// There are at most so many epochs.
    package static let mostEpochs = 1000
    /// The largest index that is read.
    package static let longest = 1 << 20
    /// How long a mark is kept, in seconds: longer than any tile is fresh for a fleet (``longestLifetime``).
    package static let lifetime: Int64 = 400 * 86_400
    /// For how long a node takes what it finds in the bucket for fresh at most, in seconds: a year.
    package static let longestLifetime: Int64 = 366 * 86_400
    /// Whole seconds are told, and a node's idea of the bucket's time may be one off.
    package static let slack: Int64 = 2

    /// How far marks may lie ahead of the time that a bucket tells, in seconds: it may be several servers.
    private static let mostAhead: Int64 = 60

    package init() {}

    /// What somebody else has put together.
    init(_ epochs: [SourceName: Epoch], _ list: [Mark], floor: Timestamp) {
        (self.epochs, self.list, self.floor) = (epochs, list, floor)
        self = settled()
    }

    /// The epoch of a source.
    package func epoch(of source: SourceName) -> Epoch { epochs[source] ?? .first }

    /// Whether a tile is stale that the origin was asked for at a time.
    ///
    /// - Parameter askedAt: By the bucket's clock.
    package func isExpired(_ key: TileKey, askedAt: Timestamp) -> Bool {
        guard let tile = key.tile else { return false }
        return staleSince(key.source, z: tile.z, x: tile.x, y: tile.y, askedAt: askedAt) != nil
    }

    /// Since when a tile is stale that the origin was asked for at a time, by the bucket's clock; `nil` if no mark is about it.
    package func staleSince(_ source: SourceName, z: Int, x: Int, y: Int, askedAt: Timestamp) -> Timestamp? {
        // Mostly this is all.
        guard latest > .distantPast, askedAt <= latest.adding(seconds: Self.slack) else { return nil }
        var since: Timestamp?
        func note(_ time: Timestamp) {
            guard time > .distantPast, askedAt <= time.adding(seconds: Self.slack) else { return }
            since = min(since ?? time, time)
        }
        note(floor)
        note(Timestamp(seconds: Int64(epoch(of: source).seconds)))
        for mark in list where mark.source == source && mark.covers(z: z, x: x, y: y) { note(mark.time) }
        return since
    }

    /// Adds a mark, and drops what it makes needless.
    package mutating func add(_ mark: Mark) {
        var next = self
        next.list.append(mark)
        self = next.settled()
    }

    /// Raises a source's epoch; a lower one changes nothing.
    package mutating func raise(_ source: SourceName, to epoch: Epoch) {
        guard epoch > self.epoch(of: source) else { return }
        epochs[source] = epoch
        self = settled()
    }

    /// What both say.
    ///
    /// - Parameter now: By the bucket's clock; what has outlived all that it was about is dropped.
    package func merged(_ other: Marks, at now: Timestamp) -> Marks {
        var all = self
        all.epochs.merge(other.epochs) { max($0, $1) }
        all.list += other.list
        all.floor = max(floor, other.floor)
        all.list.removeAll { $0.time.adding(seconds: Self.lifetime) < now }
        return all.settled()
    }

    /// The same without what lies in the future, which no author can have written whose bucket had the right time.
    ///
    /// Such a mark would make everything stale until its time has come, and such an epoch would have no greater one.
    ///
    /// - Parameter now: By the bucket's clock.
    package func plausible(at now: Timestamp) -> Marks {
        let last = now.adding(seconds: Self.mostAhead)
        guard latest > last else { return self }
        return Marks(
            epochs.filter { Int64($0.value.seconds) <= last.seconds }, list.filter { $0.time <= last },
            floor: floor <= last ? floor : .distantPast)
    }

    /// Whether all that others say is said here too.
    package func includes(_ other: Marks) -> Bool {
        func isBelowFloor(_ seconds: Int64) -> Bool { floor.seconds >= seconds }
        return floor >= other.floor
            && other.epochs.allSatisfy { epoch(of: $0.key) >= $0.value || isBelowFloor(Int64($0.value.seconds)) }
            && other.list.allSatisfy { mark in
                isBelowFloor(mark.time.seconds) || list.contains { $0.includes(mark) }
            }
    }

    // MARK: The one form

    /// The same without what others include, in a fixed order, and not too many.
    private func settled() -> Marks {
        var result = self
        result.dropNeedless()
        if result.list.count > Self.mostMarks {
            while result.list.count > Self.mostMarks { result.joinNearest() }
            result.dropNeedless()
        }
        if result.epochs.count > Self.mostEpochs {
            let oldest = result.epochs.sorted { ($0.value, $0.key) < ($1.value, $1.key) }
            for (name, epoch) in oldest.prefix(result.epochs.count - Self.mostEpochs) {
                result.epochs[name] = nil
                result.raiseFloor(Int64(epoch.seconds))
            }
        }
        let times = result.list.map(\.time.seconds) + result.epochs.values.map { Int64($0.seconds) }
        result.latest = Timestamp(seconds: max(times.max() ?? 0, result.floor.seconds))
        return result
    }

    private mutating func raiseFloor(_ seconds: Int64) { floor = max(floor, Timestamp(seconds: seconds)) }

    private mutating func dropNeedless() {
        var kept: [Mark] = []
        for mark in list.sorted(by: Self.precedes) where !kept.contains(where: { $0.includes(mark) }) {
            kept.removeAll { mark.includes($0) }
            kept.append(mark)
        }
        list = kept
    }

    /// By sources; the latest first, which make others needless.
    private static func precedes(_ a: Mark, _ b: Mark) -> Bool {
        func order(_ mark: Mark) -> [Int] {
            [
                -Int(mark.time.seconds), mark.zooms.lowerBound, mark.zooms.upperBound, mark.columns.lowerBound,
                mark.columns.upperBound, mark.rows.lowerBound, mark.rows.upperBound,
            ]
        }
        return a.source != b.source ? a.source < b.source : order(a).lexicographicallyPrecedes(order(b))
    }

    /// Makes one mark of two of a source that follow one another: of those who come to say the least more by it.
    private mutating func joinNearest() {
        var best: (index: Int, mark: Mark, cost: Double)?
        for index in list.indices.dropLast() {
            guard let both = list[index].joined(list[index + 1]) else { continue }
            let cost = both.extent - max(list[index].extent, list[index + 1].extent)
            if cost < best?.cost ?? .infinity { best = (index, both, cost) }
        }
        if let best {
            list.remove(at: best.index + 1)
            list[best.index] = best.mark
        } else if let oldest = list.indices.min(by: { list[$0].time < list[$1].time }) {
            // Each is about another source: then the oldest is about all of them.
            raiseFloor(list.remove(at: oldest).time.seconds)
        }
    }
}
