package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a pull did.
package struct PullReport: Sendable {
    /// Tiles of the set.
    package var tiles = 0
    /// Blobs of tiles that were fetched.
    package var fetchedBlobs = 0
    /// Bytes that were fetched in all: `set.json`, lists and blobs, as they came.
    package var fetchedBytes = 0
    /// Files that were asked for.
    package var requests = 0
    /// Tiles that were as the set has them.
    package var unchanged = 0
    /// Entries that the set does not have any more.
    package var removed = 0
    /// The root.
    package var root: BlobDigest?
    /// Whether a delta has saved fetching lists.
    package var usedDelta = false
    /// What the set says of the source.
    package var metadata: [String: JSONValue] = [:]
}

/// Brings a source of a cache to what a published set has.
package struct SetPuller: Sendable {
    package let store: TileStore
    package let source: SourceName
    package let fetcher: any SetFetcher
    /// The root that it has to be.
    package var expected: BlobDigest?
    /// The region that pins what was pulled.
    package var region: String
    /// A set with more tiles is refused: each takes an entry of the cache.
    package var mostTiles = 10_000_000
    /// How many files are fetched at a time.
    package var concurrency = 8
    /// Told how many of how many blobs are there, and how many bytes are left.
    package var progress: @Sendable (_ done: Int, _ total: Int, _ bytesLeft: Int) -> Void = { _, _, _ in }
    /// Asked between two steps whether to stop.
    package var wantsStop: @Sendable () -> Bool = { false }
    /// The time of day.
    package var now: Timestamp

    private let worker = Worker("set-pull")
    private let fetched = Locked((requests: 0, bytes: 0))

    package init(store: TileStore, source: SourceName, from fetcher: any SetFetcher, now: Timestamp) {
        self.store = store
        self.source = source
        self.fetcher = fetcher
        self.now = now
        region = source.description
    }

    private var cache: PulledSource { PulledSource(store: store, source: source, region: region) }

    /// What a set says of itself, before there is a cache to pull it into.
    package struct Offer: Sendable {
        fileprivate let document: SetDocument
        fileprivate let length: Int
    }

    /// Asks what there is.
    ///
    /// - Parameter expected: The root that it has to be.
    /// - Throws: ``SetError``.
    package static func offer(of fetcher: any SetFetcher, expecting expected: BlobDigest? = nil) async throws -> Offer {
        let place = "\(fetcher.place)/\(SetDocument.path)"
        guard let bytes = try await fetcher.fetch(SetDocument.path, limit: SetBounds.document) else {
            throw SetError(.notASet, "there is no \(place): name the folder of a published set, or its URL")
        }
        let document = try SetDocument(bytes, at: place)
        if let expected, expected != document.root {
            throw SetError(
                .unexpectedRoot, "the root of \(fetcher.place) is \(document.root), not \(expected): nothing was done")
        }
        return Offer(document: document, length: bytes.count)
    }

    private func offer() async throws -> Offer {
        let offer = try await Self.offer(of: fetcher, expecting: expected)
        count(offer.length)
        return offer
    }

    private func count(_ bytes: Int) { fetched.withLock { $0 = ($0.requests + 1, $0.bytes + bytes) } }

    /// Pulls.
    ///
    /// Of several pulls of one source at a time all but one are refused.
    ///
    /// - Parameter first: What the set has said, if it has been asked.
    /// - Throws: ``SetError``, `StoreError`. After a refusal the tiles of the source are as they were; after anything else what
    ///   was fetched is used by the next pull.
    package func pull(_ first: Offer? = nil) async throws -> PullReport {
        if let first { count(first.length) }
        guard let lock = try await worker.run({ [store, source] in try store.lockPulls(of: source) }) else {
            throw SetError(
                .busy, "\(source) is being pulled by another process; try again when it is done")
        }
        defer { lock.release() }
        var document = if let first { first.document } else { try await offer().document }
        var failures = 0
        while true {
            do { return try await pull(document) } catch let failure as WrongObject {
                failures += 1
                document = try await again(document, after: failure, failures)
            }
        }
    }

    /// An object of the set is not there, or is not what it is named.
    private struct WrongObject: Error {
        let path: String
        let isThere: Bool
    }

    /// The set to go on with after an object was wrong: a set may have been renewed and swept meanwhile, a copy of one may be under
    /// way, and something else than its server may have answered.
    private func again(_ document: SetDocument, after failure: WrongObject, _ failures: Int) async throws -> SetDocument
    {
        let place = "\(fetcher.place)/\(failure.path)"
        let now: SetDocument
        do { now = try await offer().document } catch let error as SetError where failure.isThere {
            switch error.code {
            case .stopped, .unexpectedRoot: throw error
            default: break
            }
            throw SetError(
                .unreachable,
                "\(place) is not what it is named, and the set cannot be read any more (\(error)): pull again when it can; what "
                    + "was fetched so far is used then")
        }
        if now != document, failures < 3 { return now }
        if !failure.isThere {
            throw SetError(
                .incomplete,
                "\(place) is missing: copy or publish the set again, then pull; what was fetched so far is used then")
        }
        if failures < 2 { return now }
        // Nothing that a wrong set has brought stays.
        let cache = cache
        try await worker.run { _ = try cache.remove(try cache.present().parts, unless: { false }) }
        throw SetError(.damaged, "\(place) has not the bytes of its name")
    }

    private func pull(_ document: SetDocument) async throws -> PullReport {
        let cache = cache
        var report = PullReport()
        report.root = document.root
        report.tiles = document.tiles
        report.metadata = document.metadata
        let expires =
            document.lifetime.map { min(document.time.adding(seconds: Int64($0)), .distantFuture) }
            ?? .distantFuture
        // Before any list is read: few bytes can stand for very many tiles.
        guard document.tiles <= mostTiles else {
            throw SetError(
                .tooLarge,
                "the set has \(document.tiles) tiles, each of which takes an entry of the cache: if that is meant, allow more with "
                    + "--max-tiles")
        }
        try await worker.run { try cache.checkRegion() }
        let present = try await worker.run { try cache.present() }
        do {
            let list = try await list(document, present, &report)
            try check(list, document)
            try await fetchBlobs(of: list, &report)
            try await record(list, document, expires, &report)
        } catch let error as SetError where error.code == .damaged || error.code == .tooLarge {
            // Nothing that a wrong set has brought stays.
            let known = Set(present.parts)
            let parts = try await worker.run { try cache.present().parts.filter { !known.contains($0) } }
            _ = try await worker.run { try cache.remove(parts, unless: { false }) }
            throw error
        }
        (report.requests, report.fetchedBytes) = fetched.withLock { $0 }
        return report
    }

    private func stop() throws {
        if wantsStop() {
            throw SetError(.stopped, "interrupted: what was fetched so far is used when it is run again")
        }
    }

    // MARK: The list

    /// The tiles of the set: by a delta from those that are there, else by the chunks that are not there.
    private func list(
        _ document: SetDocument, _ present: PulledSource.Present, _ report: inout PullReport
    ) async throws -> SetList {
        let old = try await worker.run { SetList(present.tiles) }
        if old.root.digest == document.root { return old }
        if let offer = document.deltas.first(where: { $0.from == old.root.digest }),
            let bytes = try await delta(offer), let delta = try? SetDelta(bytes)
        {
            let list = try await worker.run { SetList(delta.applied(to: old.tiles)) }
            // The root decides; one that leads elsewhere is passed over.
            if list.root.digest == document.root {
                report.usedDelta = true
                return list
            }
        }
        let root = try SetRoot(try await object(document.root, length: document.rootLength))
        guard root.tiles == document.tiles else {
            throw SetError(
                .damaged, "the set says that it has \(document.tiles) tiles, and its lists have \(root.tiles)")
        }
        let known = Dictionary(old.chunks.map { ($0.digest, $0.range) }, uniquingKeysWith: { first, _ in first })
        var tiles: [SetTile] = []
        for part in stride(from: 0, to: root.items.count, by: 64) {
            try stop()
            let items = Array(root.items[part..<min(part + 64, root.items.count)])
            let wanted = items.filter { known[$0.digest] == nil }
            let fetched = try await objects(wanted)
            for item in items {
                let chunk: [SetTile]
                if let range = known[item.digest] {
                    chunk = Array(old.tiles[range])
                } else {
                    chunk = try SetList.decode(fetched[item.digest] ?? [], of: item)
                }
                if let last = tiles.last, let first = chunk.first, first.key <= last.key {
                    throw SetError(.damaged, "tile \(first.key.text) of the set is not in its place, or is there twice")
                }
                tiles.append(contentsOf: chunk)
            }
        }
        let list = try await worker.run { [tiles] in SetList(tiles) }
        guard list.root.digest == document.root else {
            throw SetError(.damaged, "the lists of the set are not cut as sets are: its root is not that of its tiles")
        }
        return list
    }

    /// Refuses a set that contradicts itself, or for which the cache has no room.
    private func check(_ list: SetList, _ document: SetDocument) throws {
        var sizes: [BlobDigest: Int] = [:]
        var (bytes, allocated) = (0, 0)
        for tile in list.tiles {
            if let size = sizes.updateValue(tile.size, forKey: tile.blob) {
                guard size == tile.size else {
                    throw SetError(
                        .damaged, "the set says of blob \(tile.blob) that it has \(size) bytes, and \(tile.size)")
                }
            } else {
                bytes += tile.size
                allocated += (tile.size + 4095) / 4096 * 4096
            }
        }
        guard list.tiles.count == document.tiles, sizes.count == document.blobs, bytes == document.bytes else {
            throw SetError(.damaged, "the set's own figures are not those of its lists")
        }
        let limits = try store.limits()
        if let capacity = limits.capacity, allocated > capacity {
            throw SetError(
                .tooLarge,
                "the set takes \(allocated) bytes, and the cache is limited to \(capacity) ('tilegc limit' changes that)"
            )
        }
        guard list.tiles.count <= limits.entryLimit else {
            throw SetError(
                .tooLarge,
                "the set has \(list.tiles.count) tiles, and the cache is limited to \(limits.entryLimit) entries "
                    + "('tilegc limit' changes that)")
        }
    }

    /// A list by its digest: from the cache, where an interrupted pull has left it, else from the set.
    private func object(_ digest: BlobDigest, length: Int) async throws -> [UInt8] {
        let cache = cache
        if let held = try await worker.run({ try cache.bytes(of: digest, limit: length) }) { return held }
        let path = SetPaths.list(digest)
        guard let stored = try await fetch(path, limit: SetBounds.stored(length)) else {
            throw WrongObject(path: path, isThere: false)
        }
        guard let bytes = SetList.unpacked(stored, digest, length: length) else {
            throw WrongObject(path: path, isThere: true)
        }
        try await keep([(digest, Data(bytes))])
        return bytes
    }

    /// A file of the set; `nil` where it is missing.
    private func fetch(_ path: String, limit: Int) async throws -> [UInt8]? {
        do {
            let bytes = try await fetcher.fetch(path, limit: limit)
            count(bytes?.count ?? 0)
            return bytes
        } catch let error as SetError where error.code == .damaged {
            // It is longer than the set says.
            count(0)
            throw WrongObject(path: path, isThere: true)
        }
    }

    /// A delta; `nil` where it cannot be had, since the lists do as well.
    private func delta(_ offer: SetDocument.Delta) async throws -> [UInt8]? {
        do { return try await object(offer.digest, length: offer.length) } catch is WrongObject { return nil } catch let
            error as SetError where error.code == .unreachable || error.code == .refused
        {
            try Task.checkCancellation()
            return nil
        }
    }

    /// Several chunks.
    private func objects(_ items: [SetRoot.Item]) async throws -> [BlobDigest: [UInt8]] {
        var result: [BlobDigest: [UInt8]] = [:]
        let wanted = Array(Set(items))
        var next = 0
        try await withThrowingTaskGroup(of: (BlobDigest, [UInt8]).self) { group in
            func add() {
                guard next < wanted.count else { return }
                let item = wanted[next]
                next += 1
                group.addTask { (item.digest, try await object(item.digest, length: item.length)) }
            }
            for _ in 0..<max(1, concurrency) { add() }
            while let (digest, bytes) = try await group.next() {
                result[digest] = bytes
                add()
            }
        }
        return result
    }

    // MARK: Blobs

    /// So many blobs wait for being stored together: a process that is killed has to fetch them again.
    private static let mostUnkept = 16

    /// Fetches the blobs that the cache has not.
    private func fetchBlobs(of list: SetList, _ report: inout PullReport) async throws {
        let store = store
        let wanted = try await worker.run { () -> [SetTile] in
            var seen = Set<BlobDigest>()
            // Not by the entries alone: a power cut may have left them without what they name.
            return try list.tiles.filter {
                try seen.insert($0.blob).inserted && !store.hasSoundBlob($0.blob, size: $0.size)
            }
        }
        try await fetch(wanted, &report)
    }

    private func fetch(_ wanted: [SetTile], _ report: inout PullReport) async throws {
        var bytesLeft = wanted.reduce(0) { $0 + $1.size }
        var (next, done, waiting) = (0, 0, 0)
        var batch: [(digest: BlobDigest, data: Data)] = []
        progress(0, wanted.count, bytesLeft)
        do {
            try await withThrowingTaskGroup(of: (SetTile, Data).self) { group in
                func add() {
                    guard next < wanted.count else { return }
                    let tile = wanted[next]
                    next += 1
                    group.addTask { (tile, try await blob(tile)) }
                }
                for _ in 0..<max(1, concurrency) { add() }
                while let (tile, data) = try await group.next() {
                    report.fetchedBlobs += 1
                    done += 1
                    bytesLeft -= data.count
                    batch.append((tile.blob, data))
                    waiting += data.count
                    if batch.count >= Self.mostUnkept || waiting >= 1 << 20 {
                        try await keep(batch)
                        (batch, waiting) = ([], 0)
                    }
                    progress(done, wanted.count, bytesLeft)
                    try stop()
                    add()
                }
            }
        } catch {
            // What has come is not to be fetched again.
            if !batch.isEmpty { try await keep(batch) }
            throw error
        }
        if !batch.isEmpty { try await keep(batch) }
    }

    /// A blob from the set, checked by its name.
    private func blob(_ tile: SetTile) async throws -> Data {
        let path = SetPaths.blob(tile.blob)
        guard let bytes = try await fetch(path, limit: tile.size) else {
            throw WrongObject(path: path, isThere: false)
        }
        guard bytes.count == tile.size, bytes.digest == tile.blob else {
            throw WrongObject(path: path, isThere: true)
        }
        return Data(bytes)
    }

    private func keep(_ bodies: [(digest: BlobDigest, data: Data)]) async throws {
        let (cache, now) = (cache, now)
        try await worker.run { try cache.keep(bodies, now: now) }
    }

    // MARK: Recording

    private func record(
        _ list: SetList, _ document: SetDocument, _ expires: Timestamp, _ report: inout PullReport
    ) async throws {
        let (cache, wantsStop) = (cache, wantsStop)
        let times = (storedAt: min(document.time, now), expires: expires)
        let state = PullState(root: document.root, expires: expires)
        try await worker.run { try cache.pin(list.tiles) }
        // What is pinned stays from here on; some of what was there before may have gone.
        let present = try await worker.run { try cache.present() }
        let (changed, gone, unchanged) = Self.compare(list.tiles, present, expires)
        var news = changed
        let others = present.others.isEmpty ? [] : Self.keys(present.others, outside: list.tiles)
        report.unchanged = unchanged
        let isComplete = news.isEmpty && gone.isEmpty && others.isEmpty
        // Until it is written again nothing says that the tiles are those of one set.
        try await worker.run { if try !isComplete || cache.state() != state { try cache.removeState() } }
        // A blob that was of another source may have been evicted since it was looked for.
        for _ in 0..<3 where !news.isEmpty {
            var missing: [SetTile] = []
            for start in stride(from: 0, to: news.count, by: 512) {
                try stop()
                let part = Array(news[start..<min(start + 512, news.count)])
                missing += try await worker.run { try cache.record(part, times: times) }
            }
            news = missing
            var seen = Set<BlobDigest>()
            try await fetch(missing.filter { seen.insert($0.blob).inserted }, &report)
        }
        guard news.isEmpty else {
            throw SetError(
                .unreachable, "tiles go as quickly as they are stored: raise the cache's limits, and pull again")
        }
        let old = gone.map { TileKey(source: source, tile: $0.tile) } + others
        report.removed = try await worker.run { [old] in try cache.remove(old, unless: wantsStop) }
        try stop()
        let now = now
        try await worker.run {
            if try cache.state() != state { try cache.write(state, now: now) }
            // The entries that only a pull needs; those that are left when it is stopped go with the next one.
            _ = try cache.remove(try cache.present().parts, unless: wantsStop)
        }
    }

    /// Those of some keys that a list does not have.
    private static func keys(_ keys: [TileKey], outside tiles: [SetTile]) -> [TileKey] {
        let known = Set(tiles.lazy.map(\.key))
        return keys.filter { key in key.tile.map { !known.contains(SetKey($0)) } ?? false }
    }

    /// Which tiles are to be recorded, which keys go, and how many tiles are as they should be.
    private static func compare(
        _ new: [SetTile], _ present: PulledSource.Present, _ expires: Timestamp
    ) -> (news: [SetTile], gone: [SetKey], unchanged: Int) {
        var news: [SetTile] = []
        var gone: [SetKey] = []
        var (i, unchanged) = (0, 0)
        for tile in new {
            while i < present.tiles.count, present.tiles[i].key < tile.key {
                gone.append(present.tiles[i].key)
                i += 1
            }
            if i < present.tiles.count, present.tiles[i].key == tile.key {
                if present.tiles[i].isContent(like: tile) {
                    unchanged += 1
                    if present.expires[i] != expires { news.append(tile) }
                } else {
                    news.append(tile)
                }
                i += 1
            } else {
                news.append(tile)
            }
        }
        gone.append(contentsOf: present.tiles[i...].map(\.key))
        return (news, gone, unchanged)
    }
}
