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
    }

    private enum State {
        case opening(reloads: Bool)
        case opened(SetDocument)
        case searching(SetSearch, in: SetListing)
    }

    private let place: SetKey
    /// The first digits of the version's root, if it is not to be the latest one.
    private let digits: String?
    private var state = State.opening(reloads: false)
    /// When the `set.json` was read that is gone by.
    private var readAt: Timestamp?
    /// The version that is gone by.
    private var root: BlobDigest?
    /// Whether something was missing that `set.json` led to.
    private var wasMissing = false

    /// - Parameters:
    ///   - version: The first digits of the version's root; `nil` for the latest one.
    ///   - known: `set.json` as it was read last.
    package init(to tile: TileAddress, version: String?, known: SetDocument?) {
        (place, digits) = (SetKey(tile), version)
        // What a version is does not change, so that nobody is asked whether there is a newer one.
        if let version, let known, SetVersion(version, of: known) != nil { state = .opened(known) }
    }

    /// What is needed next; the same until it is taken.
    package mutating func next(at now: HTTPDate) -> Step {
        switch state {
        case .opening(let reloads): return .document(reloads: reloads)
        case .opened(let document):
            guard let version = SetVersion(digits, of: document) else { return .noVersion }
            root = version.root
            return .list(version, isRepeated: isRepeated(at: now))
        case .searching(var search, let listing):
            let step = search.next()
            state = .searching(search, in: listing)
            switch step {
            case .tile(let tile) where tile.key.isAtPlace(of: place):
                return .file(of: tile, isRepeated: isRepeated(at: now))
            case .tile, .none: return .absent
            case .chunk(let number): return .chunk(number, of: listing, isRepeated: isRepeated(at: now))
            }
        }
    }

    /// Takes `set.json`.
    ///
    /// - Parameter readAt: When its server was asked for it last.
    package mutating func take(_ document: SetDocument, readAt: Timestamp) {
        self.readAt = readAt
        state = .opened(document)
    }

    /// Takes the list of the version that was named.
    package mutating func take(_ listing: SetListing) { state = .searching(SetSearch(place, in: listing), in: listing) }

    /// Takes a chunk of the list.
    package mutating func take(_ tiles: [SetTile], as number: Int) {
        guard case .searching(var search, let listing) = state else { return }
        search.take(tiles, as: number)
        state = .searching(search, in: listing)
    }

    /// The lists that have led here: the root, and the chunk that the search has come to.
    package var lists: [BlobDigest] {
        guard case .searching(let search, let listing) = state else { return [] }
        return [listing.root] + (search.chunk.map { [listing.items[$0].digest] } ?? [])
    }

    /// A file is missing that was named: the set was renewed, perhaps, and `set.json` has to be read anew.
    ///
    /// - Parameter latest: The root in the `set.json` that was read last: somebody else may have read it anew meanwhile.
    /// - Returns: `false` if it was read anew already, or a moment ago: then what it names is missing at the server.
    package mutating func retries(latest: BlobDigest?, at now: HTTPDate) -> Bool {
        guard !isRepeated(at: now) else { return false }
        wasMissing = true
        state = .opening(reloads: root == latest || digits != nil)
        return true
    }

    /// Whether `set.json` was read a moment ago, so that what it names has to be there.
    private func isRepeated(at now: HTTPDate) -> Bool {
        if wasMissing { return true }
        guard let readAt else { return false }
        return (0..<2).contains(now.seconds - readAt.seconds)
    }
}
