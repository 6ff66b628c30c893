import CacheEngine
import HTTPCaching
import NIOCore
import TileArchive
import TileCache
import TileSets
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A published set at a server.
///
/// Its files are entries: `set.json` like any response, with the server's word on how long it is fresh, but checked every few seconds;
/// all others under the names of their contents, so that they never change, tiles with equal bytes are fetched once, and a new
/// version costs what is new in it. Here is only what was made of them, so that nothing is made twice.
final class RemoteSet: RemoteTiles {
    fileprivate struct State {
        /// `set.json` as it was read last, and what names its bytes.
        var document: (value: SetDocument, bytes: BlobDigest)?
        /// The lists that were used last, the latest first.
        var listings: [SetListing] = []
    }

    private let given: SourceConfiguration
    /// Its `set.json`.
    let document: ArchivePart
    private let state = Locked(State())
    private let documents: PartReader<SetDocument>
    private let listings: PartReader<SetListing>
    private let chunks: PartReader<[SetTile]>

    /// So many lists are kept in memory; of the largest that is possible, one takes 6 MB.
    private static let mostListings = 8
    /// After so many seconds a new version is looked for, so that it is taken up within ten, however clocks round.
    private static let checkedEvery: Int64 = 9

    /// - Parameter given: A source that names a published set at a server.
    init(_ given: SourceConfiguration) {
        self.given = given
        let name = given.name.description
        (documents, listings, chunks) = (PartReader(of: name), PartReader(of: name), PartReader(of: name))
        document = ArchivePart(
            key: TileKey(
                source: given.name, resource: ResourceAddress(uncheckedPath: "set/\(given.fileIdentity).json")),
            question: FileQuestion(document: SetBounds.document), lifetime: Self.checkedEvery
        ) { bytes, _ in
            do {
                _ = try SetDocument([UInt8](bytes), at: "the set's document")
                return nil
            } catch { return "\(error)" }
        }
    }

    // MARK: Files

    /// The file of a tile's bytes.
    func part(of tile: SetTile, isRepeated: Bool) -> ArchivePart {
        let (blob, size) = (tile.blob, tile.size)
        return object(SetPaths.blob(blob), "\(blob)", most: size, isRepeated, blob) { data in
            data.count == size && data.withUnsafeBytes { BlobDigest(hashing: $0) } == blob
                ? nil : "other bytes than the set's list says"
        }
    }

    /// The file of a list, which has to make sense too: one that does not would be read again for each tile.
    private func part(
        of list: BlobDigest, length: Int, isRepeated: Bool, _ read: @escaping @Sendable (Data) throws -> Void
    ) -> ArchivePart {
        object(SetPaths.list(list), "\(list).gz", most: SetBounds.stored(length), isRepeated, nil) { data in
            do {
                try read(data)
                return nil
            } catch { return "\(error)" }
        }
    }

    private func object(
        _ path: String, _ name: String, most: Int, _ isRepeated: Bool, _ blob: BlobDigest?,
        _ objection: @escaping @Sendable (Data) -> String?
    ) -> ArchivePart {
        ArchivePart(
            key: TileKey(source: given.name, resource: ResourceAddress(uncheckedPath: "set/" + name)),
            question: FileQuestion(object: most, isRepeated: isRepeated), path: path, blob: blob
        ) { data, _ in objection(data) }
    }

    // MARK: Reading

    /// `set.json`, as it is stored or was brought just now.
    ///
    /// - Parameter finish: Called once, on the loop; at once if it is known.
    func document(
        of candidate: Candidate, on tiles: TileLoop,
        _ finish: @escaping @Sendable (Result<SetDocument, PartTrouble>) -> Void
    ) {
        guard let bytes = candidate.entry.blob else {
            return finish(.failure(documents.unusable("a set.json whose bytes are not known")))
        }
        if let known = state.withLock({ $0.document }), known.bytes == bytes { return finish(.success(known.value)) }
        let state = state
        documents.read("\(bytes)", of: candidate, on: tiles) { data in
            let document = try SetDocument([UInt8](data), at: "the set's document")
            state.withLock { $0.document = (document, bytes) }
            return document
        } _: {
            finish($0)
        }
    }

    /// The list of a version.
    ///
    /// - Parameters:
    ///   - isRepeated: Whether `set.json` was read anew because a file was missing.
    ///   - finish: Called once, on the loop; at once if it is in memory.
    func listing(
        _ version: SetVersion, isRepeated: Bool, of source: ServedSource, on tiles: TileLoop, onlyIfCached: Bool,
        _ finish: @escaping @Sendable (Result<SetListing, PartTrouble>) -> Void
    ) {
        let root = version.root
        if let known = state.withLock({ $0.find(root) }) { return finish(.success(known)) }
        let state = state
        let part = part(of: root, length: version.length, isRepeated: isRepeated) { _ = try version.list($0) }
        listings.ask("\(root)", part, of: source, on: tiles, onlyIfCached: onlyIfCached) { data in
            let listing = SetListing(try version.list(data))
            state.withLock { $0.keep(listing, most: Self.mostListings) }
            return listing
        } _: {
            finish($0)
        }
    }

    /// Reads a chunk of a list, which keeps it.
    ///
    /// - Parameters: As of ``listing(_:isRepeated:of:on:onlyIfCached:_:)``.
    func chunk(
        _ number: Int, of listing: SetListing, isRepeated: Bool, of source: ServedSource, on tiles: TileLoop,
        onlyIfCached: Bool, _ finish: @escaping @Sendable (Result<[SetTile], PartTrouble>) -> Void
    ) {
        if let known = listing.known(number) { return finish(.success(known)) }
        let item = listing.items[number]
        let part = part(of: item.digest, length: item.length, isRepeated: isRepeated) {
            _ = try listing.chunk([UInt8]($0), number: number)
        }
        chunks.ask("\(listing.root) \(number)", part, of: source, on: tiles, onlyIfCached: onlyIfCached) { data in
            let tiles = try listing.chunk([UInt8](data), number: number)
            listing.keep(tiles, as: number)
            return tiles
        } _: {
            finish($0)
        }
    }

    // MARK: Asking

    var versions: [SourceVersion] { state.withLock { $0.document.map { SourceVersion.all(of: $0.value) } } ?? [] }

    /// `set.json` as it was read last.
    var latestDocument: SetDocument? { state.withLock { $0.document?.value } }

    /// The root that was seen last.
    var latestRoot: BlobDigest? { latestDocument?.root }

    func question(
        _ key: TileKey, version: String?, of source: ServedSource, on tiles: TileLoop, onlyIfCached: Bool,
        _ finish: @escaping (TileExchange.Outcome) -> Void
    ) -> any TileAnswering {
        SetExchange(StepsToTile(tiles, source, onlyIfCached: onlyIfCached, finish), self, key, version: version)
    }

    func describe(
        version: String?, of source: ServedSource, on tiles: TileLoop,
        _ finish: @escaping @Sendable (RemoteDescription) -> Void
    ) {
        let bound = NIOLoopBound(tiles, eventLoop: tiles.loop)
        TileExchange(tiles, source, document.key, onlyIfCached: false, subject: .part(document)) { outcome in
            guard case .tile(let candidate, _, _, _) = outcome else { return finish(.unknown) }
            self.document(of: candidate, on: bound.value) { reading in
                guard case .success(let document) = reading else { return finish(.unknown) }
                guard let chosen = SetVersion(version, of: document) else { return finish(.noVersion) }
                self.describe(document, chosen, isNamed: version != nil, source, on: bound, finish)
            }
        }.start()
    }

    /// Describes a version by its first tile and its last one, which are as good as at hand once tiles of it were asked for.
    private func describe(
        _ document: SetDocument, _ version: SetVersion, isNamed: Bool, _ source: ServedSource,
        on tiles: NIOLoopBound<TileLoop>,
        _ finish: @escaping @Sendable (RemoteDescription) -> Void
    ) {
        let given = given
        let say: @Sendable ((SetTile, SetTile)?) -> Void = { ends in
            let said = ArchiveMetadata(of: document, version: version.root, ends: ends.map { ($0.0, $0.1) })
            let kind: TileKind = said.tileFormat == "pbf" || said.tileFormat == "mvt" ? .vector : .any
            let (configuration, map) = given.described(by: said, kind: kind)
            finish(.said(configuration, map, isNamed ? SourceVersion(root: version.root, replaced: nil) : nil))
        }
        listing(version, isRepeated: false, of: source, on: tiles.value, onlyIfCached: false) { reading in
            guard case .success(let listing) = reading, let last = listing.items.indices.last else { return say(nil) }
            self.chunk(0, of: listing, isRepeated: false, of: source, on: tiles.value, onlyIfCached: false) { reading in
                guard case .success(let start) = reading else { return say(nil) }
                self.chunk(last, of: listing, isRepeated: false, of: source, on: tiles.value, onlyIfCached: false) {
                    guard case .success(let end) = $0, let first = start.first, let last = end.last else {
                        return say(nil)
                    }
                    say((first, last))
                }
            }
        }
    }
}

extension RemoteSet.State {
    /// A list, which is used by that.
    fileprivate mutating func find(_ root: BlobDigest) -> SetListing? {
        guard let place = listings.firstIndex(where: { $0.root == root }) else { return nil }
        let found = listings.remove(at: place)
        listings.insert(found, at: 0)
        return found
    }

    fileprivate mutating func keep(_ listing: SetListing, most: Int) {
        listings.removeAll { $0.root == listing.root }
        listings.insert(listing, at: 0)
        if listings.count > most { listings.removeLast() }
    }
}

/// A version of a set: its root, and the length of that.
struct SetVersion: Hashable, Sendable {
    let root: BlobDigest
    let length: Int

    /// The version whose root begins with some digits, or the latest one without any; `nil` if there is none, or several are.
    init?(_ digits: String?, of document: SetDocument) {
        let former = document.kept.filter { $0.root != document.root }
        let roots = [(document.root, document.rootLength)] + former.map { ($0.root, $0.length) }
        let found = digits.map { digits in roots.filter { $0.0.description.hasPrefix(digits) } } ?? [roots[0]]
        guard found.count == 1 else { return nil }
        (root, length) = found[0]
    }

    /// Its chunks, from the file that a set has of its root.
    ///
    /// - Throws: ``SetError``.
    func list(_ stored: Data) throws -> SetRoot {
        guard let bytes = SetList.unpacked([UInt8](stored), root, length: length) else {
            throw SetError(.damaged, "the list \(root) is damaged")
        }
        return try SetRoot(bytes)
    }
}
