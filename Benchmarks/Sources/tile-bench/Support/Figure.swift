/// One line of the table: what was measured, beside its floor, its target and the peers.
struct Figure: Codable {
    /// What a value counts.
    enum Unit: String, Codable {
        case microseconds = "µs"
        case perSecond = "/s"
        case seconds = "s"
        case milliseconds = "ms"
        case bytesAnEntry = "B/entry"
        case bytes = "B"
        case factor = "x"
    }

    /// What must hold.
    enum Target: Codable {
        case atMost(Double)
        case atLeast(Double)
        case ratioAtMost(Double)
        case ratioAtLeast(Double)
    }

    /// What another store took for the same.
    struct PeerValue: Codable {
        var value: Double
        /// To ours: the median of the rounds' ratios.
        var ratio: Double
    }

    /// The name that `--only` takes.
    var row: String
    /// How many entries the cache had, where that is what grows.
    var entries: Int?
    /// What was measured.
    var what: String
    var unit: Unit
    /// The median of ours.
    var ours: Double
    /// The median of the floor.
    var floor: Double?
    /// What the floor does.
    var floorIs: String?
    /// Ours to the floor: the median of the rounds' ratios.
    var ratio: Double?
    var target: Target?
    /// The peers by ``Peer``'s names.
    var peers: [String: PeerValue] = [:]
    /// Every round of everything that was measured.
    var samples: [String: [Double]] = [:]

    /// Whether the target was reached; `nil` without one.
    var passed: Bool? {
        switch target {
        case nil: nil
        case .atMost(let limit): ours <= limit
        case .atLeast(let limit): ours >= limit
        case .ratioAtMost(let limit): (ratio ?? .infinity) <= limit
        case .ratioAtLeast(let limit): (ratio ?? 0) >= limit
        }
    }
}

extension Figure {
    /// A line of contestants named "ours", "floor" and as the peers are; all but the first may be absent.
    init(
        _ row: String, _ what: String, _ unit: Unit, _ contest: Contest, ours: String = "ours", floor: String = "floor",
        floorIs: String? = nil, target: Target? = nil
    ) {
        self.row = row
        self.what = what
        self.unit = unit
        self.ours = contest.median(of: ours)
        self.floorIs = floorIs
        self.target = target
        if contest.samples[floor] != nil {
            self.floor = contest.median(of: floor)
            ratio = contest.ratio(ours, to: floor)
        }
        for peer in Peer.allCases.map(\.rawValue) where contest.samples[peer] != nil {
            peers[peer] = PeerValue(value: contest.median(of: peer), ratio: contest.ratio(peer, to: ours))
        }
        samples = contest.samples.filter { [ours, floor].contains($0.key) || peers[$0.key] != nil }
    }
}
