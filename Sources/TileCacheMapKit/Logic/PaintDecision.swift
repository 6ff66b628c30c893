/// What of a tile's surroundings could stand in for it.
struct StandIns: Hashable, Sendable {
    /// So many zooms further out is the nearest tile whose picture is there, 0 for the tile itself in another scale;
    /// `nil` if there is none.
    var ancestor: Int?
    /// Which of the four tiles of the next zoom have pictures: bit 0 north-west, 1 north-east, 2 south-west, 3 south-east.
    var children: UInt8 = 0

    static let none = StandIns(ancestor: nil)
}

/// What is under way for a tile.
enum LoadStatus: Hashable, Sendable, CaseIterable {
    /// Nothing: it may be asked for.
    case idle
    /// It has been asked for.
    case loading
    /// It failed, or was asked for a moment ago, and is left alone for now.
    case held
}

/// What is drawn in a tile's place, and what is asked for: the whole of the rules, as a function of values.
struct PaintDecision: Hashable, Sendable {
    enum Picture: Hashable, Sendable {
        case nothing
        /// The tile's own, enlarged where the zoom is beyond the source's last.
        case own
        /// From back to front: the share of a tile so many zooms further out, then those of the four children there are.
        case standIns(StandIns)
    }
    enum Request: Hashable, Sendable {
        case none
        /// Nothing of it is there.
        case load
        /// Something is there, and stale.
        case refresh
    }

    var picture: Picture
    var request: Request

    /// Decides.
    ///
    /// - Parameters:
    ///   - zoom: Where the zoom lies.
    ///   - overzooms: Whether tiles are enlarged beyond the last zoom.
    ///   - state: What the cache has of the tile; beyond the last zoom, of the one there that covers the place.
    ///   - status: What is under way for it.
    ///   - standIns: What could stand in for it; only looked for where it is needed.
    static func decide(
        zoom: ZoomState, overzooms: Bool, state: CachedTileState, status: LoadStatus,
        standIns: @autoclosure () -> StandIns
    ) -> PaintDecision {
        if zoom == .belowMinimum || zoom == .beyondMaximum && !overzooms {
            return PaintDecision(picture: .nothing, request: .none)
        }
        let wanted: Request =
            switch state.content {
            case .missing: .load
            case .picture, .absent: state.isStale ? .refresh : .none
            }
        let request = status == .idle ? wanted : .none
        guard state.content != .picture else { return PaintDecision(picture: .own, request: request) }
        var found = standIns()
        // What the children cover completely needs nothing behind it.
        if found.children == 0b1111 { found.ancestor = nil }
        return PaintDecision(picture: found == .none ? .nothing : .standIns(found), request: request)
    }
}
