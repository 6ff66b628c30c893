package import HTTPCaching
package import TileArchive
package import TileSets
package import TileStore

/// The way to a tile of a published set at a server: `set.json`, then the list as far as it is needed, then the file of its bytes.
///
/// A value that reads nothing itself: it names what is needed next and takes what came of it, so that the way is the same for the
/// library's tasks and the proxy's event loops.
package struct SetSteps: Sendable {
    /// What is needed next.
    package enum Step: Sendable {
        /// `set.json`; from its server, whatever is stored, if it `reloads`.
        case document(reloads: Bool)
        /// The list of a version.
        case list(SetVersion, isRepeated: Bool)
        /// A chunk of that list.
        case chunk(Int, of: SetListing, isRepeated: Bool)
        /// The bytes.
        case file(of: SetTile, isRepeated: Bool)
        /// Nothing: there is no such tile.
        case absent
        /// Nothing: there is no such version.
        case noVersion
        /// Nothing that can be had: a later version has a tile there, and the one that is followed has none.
        case gone
    }

    /// `set.json` as it was read last.
    package struct Known: Sendable {
        package let document: SetDocument
        /// What names its bytes.
        package let bytes: BlobDigest
        /// When its server was asked for it last.
        package let readAt: Timestamp

        package init(_ document: SetDocument, _ bytes: BlobDigest, readAt: Timestamp) {
            (self.document, self.bytes, self.readAt) = (document, bytes, readAt)
        }

        /// Whether it was written before another one that was read already.
        ///
        /// Answers overtake each other: it is not believed before it was asked for once more. Then it is, as a set may be rolled back.
        package func isDoubtful(after former: Known?) -> Bool {
            former.map { document.time < $0.document.time } ?? false
        }

        /// Whether that was a moment ago, so that what it names has to be there, and what it does not name is not.
        package func isRecent(at now: HTTPDate) -> Bool { SetSteps.isRecent(readAt, at: now) }
    }

    private enum State {
        case opening(reloads: Bool)
        case opened(SetDocument)
        case chosen(SetVersion)
        case searching(SetSearch, in: SetListing)
    }

    private let place: SetKey
    /// The first digits of the version's root, if it is not to be the latest one.
    private let digits: String?
    private var state = State.opening(reloads: false)
    /// The `set.json` that is followed, and when it was read.
    private var document: SetDocument?
    private var readAt: Timestamp?
    /// The version that is followed.
    private var version: SetVersion?
    /// Whether something was missing that `set.json` led to.
    private var wasMissing = false
    /// The versions that were the latest ones before, the last of them first, as far as they have not been tried; `nil` until one is.
    private var former: ArraySlice<(version: SetVersion, replaced: Timestamp)>?
    /// Whether the latest version has a tile there, or, where its list is not known, one before it.
    private var isNamed = false

    /// - Parameters:
    ///   - version: The first digits of the version's root; `nil` for the latest one.
    ///   - chosen: The version that these digits name, if that is known.
    ///   - known: `set.json` as it was read last.
    package init(to tile: TileAddress, version: String?, chosen: SetVersion? = nil, known: Known?) {
        (place, digits) = (SetKey(tile), version)
        // What a version is does not change, so that nobody is asked whether there is a newer one.
        if let version, let chosen = chosen ?? known.flatMap({ SetVersion(version, of: $0.document) }) {
            (state, readAt) = (.chosen(chosen), known?.readAt)
        }
    }

    /// What is needed next; the same until it is taken.
    package mutating func next(at now: HTTPDate) -> Step {
        switch state {
        case .opening(let reloads): return .document(reloads: reloads)
        case .opened(let document):
            guard let version = SetVersion(digits, of: document) else { return .noVersion }
            return list(version, now)
        case .chosen(let version): return list(version, now)
        case .searching(var search, let listing):
            let step = search.next()
            state = .searching(search, in: listing)
            switch step {
            case .tile(let tile) where tile.key.isAtPlace(of: place):
                isNamed = true
                return .file(of: tile, isRepeated: isRepeated(at: now))
            case .tile, .none: return isFormer && isNamed ? .gone : .absent
            case .chunk(let number): return .chunk(number, of: listing, isRepeated: isRepeated(at: now))
            }
        }
    }

    private mutating func list(_ version: SetVersion, _ now: HTTPDate) -> Step {
        self.version = version
        return .list(version, isRepeated: isRepeated(at: now))
    }

    /// Takes `set.json`.
    ///
    /// - Parameters:
    ///   - former: The one that was read before.
    ///   - mayAsk: Whether its server can be asked again.
    ///   - isAnswer: Whether its server has given it just now.
    /// - Returns: Whether it is believed; else it is asked for once more, or the former one counts if that cannot be.
    package mutating func take(_ known: Known, after former: Known?, mayAsk: Bool, isAnswer: Bool) -> Bool {
        guard let former, known.isDoubtful(after: former) else {
            follow(known)
            return true
        }
        if mayAsk, !wasMissing {
            wasMissing = true
            state = .opening(reloads: true)
            return false
        }
        // What was stored is no answer to the question whether it counts.
        follow(isAnswer ? known : former)
        return isAnswer
    }

    private mutating func follow(_ known: Known) {
        (readAt, document) = (known.readAt, known.document)
        state = .opened(known.document)
    }

    /// Takes the list of the version that was named.
    package mutating func take(_ listing: SetListing) { state = .searching(SetSearch(place, in: listing), in: listing) }

    /// Takes a chunk of the list.
    package mutating func take(_ tiles: [SetTile], as number: Int) {
        guard case .searching(var search, let listing) = state else { return }
        search.take(tiles, as: number)
        state = .searching(search, in: listing)
    }

    /// The lists that have led here: the root, and the chunks that the search has looked at.
    var lists: [UsedList] {
        guard case .searching(let search, let listing) = state, let version else { return [] }
        return [.root(version)] + search.path.map { .chunk($0, of: listing) }
    }

    /// The root, and the chunk that the search has come to: where both are looked after, so are those between them.
    var ends: (root: BlobDigest, chunk: BlobDigest?)? {
        guard case .searching(let search, let listing) = state else { return nil }
        return (listing.root, search.path.last.map { listing.items[$0].digest })
    }

    /// A file is missing that was named, or a version is: the set was renewed, perhaps, and `set.json` has to be read anew.
    ///
    /// - Parameter latest: The root in the `set.json` that was read last: somebody else may have read it anew meanwhile.
    /// - Returns: `false` if it was read anew already, or a moment ago: then what it names is missing at the server.
    package mutating func retries(latest: BlobDigest?, at now: HTTPDate) -> Bool {
        guard !isFormer, !isRepeated(at: now) else { return false }
        wasMissing = true
        state = .opening(reloads: version?.root == latest || digits != nil)
        return true
    }

    /// Whether it is about a former version, of which only what is in the cache is of use.
    package var isFormer: Bool { former != nil }

    /// Whether there may be a tile of the version before the latest one, for whoever cannot have one of the latest.
    ///
    /// Looked up only when that is asked: on the way to a tile that is here nobody asks.
    /// - Parameter isHere: Whether a version, which was replaced then, has a tile at the place that may stand in.
    package func standIn(
        _ isHere: @escaping @Sendable (_ root: BlobDigest, _ replaced: Timestamp, _ place: SetKey) -> Bool
    ) -> (@Sendable () -> Bool)? {
        guard digits == nil, former == nil, let document else { return nil }
        let place = place
        return { SetVersion.former(of: document).first.map { isHere($0.version.root, $0.replaced, place) } ?? false }
    }

    /// Nothing can be had of the latest version: turns to the one before it, which may have been shown, and lie in the cache.
    ///
    /// - Parameter mayServe: Whether the list of a version, which was replaced then, is in the cache, and may stand in.
    /// - Returns: `false` if there is none.
    package mutating func turnsBack(_ mayServe: (SetVersion, _ replaced: Timestamp) -> Bool) -> Bool {
        guard digits == nil, let document else { return false }
        var former = former ?? SetVersion.former(of: document)[...]
        while let next = former.popFirst() {
            guard mayServe(next.version, next.replaced) else { continue }
            self.former = former
            state = .chosen(next.version)
            return true
        }
        return false
    }

    private static func isRecent(_ readAt: Timestamp, at now: HTTPDate) -> Bool {
        (0..<2).contains(now.seconds &- readAt.seconds)
    }

    /// Whether `set.json` was read a moment ago, so that what it names has to be there.
    private func isRepeated(at now: HTTPDate) -> Bool {
        wasMissing || readAt.map { Self.isRecent($0, at: now) } ?? false
    }
}
