import ContentCoding
public import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Puts an archive's tiles into a store, a bounded batch at a time.
///
/// Each batch is in the store when it is done: an import that is stopped or killed leaves a sound cache, and running it
/// again completes it. Equal bytes are stored once.
public struct ArchiveImport {
    /// The store to write to.
    public let store: TileStore
    /// The source that the tiles belong to there.
    public let source: SourceName
    /// One time for the whole import: it tells its entries from others.
    ///
    /// A clock that is wrong by a century gives the nearest time that the store can keep.
    public var now: Timestamp { didSet { now = now.kept } }
    /// How long the tiles are fresh, in seconds.
    public var lifetime = 7 * 86_400
    /// Whether the format becomes part of the key, for a source that has several.
    public var keepsFormat = false
    /// Whether a tile stays that was stored later than the archive (in a folder: the file) was written.
    ///
    /// Otherwise an imported tile replaces what is there.
    public var keepsNewer = false
    /// How many tiles an archive may have: an import of more is refused, or ends there.
    ///
    /// A small file can claim billions, and each costs the cache an entry.
    public var mostTiles = 10_000_000

    private static let batchCount = 256
    private static let batchBytes = 2 << 20

    /// Prepares an import.
    public init(store: TileStore, source: SourceName, now: Timestamp) {
        self.store = store
        self.source = source
        self.now = now.kept
    }

    /// Imports all tiles, or as many as were done when the observer stopped it.
    ///
    /// - Throws: ``ArchiveError`` where the archive is damaged or has more than ``mostTiles``, `StoreError` where the store
    ///   cannot be written; what was imported so far stays.
    public func run(_ archive: any ArchiveReader, observer: any TransferObserver) throws -> TransferReport {
        let stoppable = archive as? any StoppableReader
        let total = stoppable.map { $0.tileCount(unless: { observer.wantsStop }) } ?? archive.tileCount
        try Self.check(archive, total: total, most: mostTiles)
        var filling = Filling(plan: self, archive: archive, total: total, observer: observer)
        defer { filling.pipeline.close() }
        do {
            var wasStopped = false
            try archive.forEachTile(
                stoppedBy: {
                    wasStopped = wasStopped || observer.wantsStop
                    return wasStopped
                }
            ) { step in
                try filling.take(step)
                if observer.wantsStop { wasStopped = true }
                return !wasStopped
            }
            filling.report.wasStopped = wasStopped
        } catch let error as ArchiveError {
            // What could be read is as good as the rest would have been.
            try filling.finish()
            throw error
        }
        try filling.finish()
        return filling.report
    }

    /// Whether an archive has a tile that could be imported.
    ///
    /// Reads up to the first one; for who would rather not make a cache for nothing.
    /// - Parameters:
    ///   - archive: The archive.
    ///   - isStopped: Asked now and then: `true` ends the search, and no tile counts as found.
    ///   - skipped: Told what was passed over, and why.
    ///   - failed: Told what could not be read, and why.
    /// - Throws: ``ArchiveError`` where the archive is damaged or has more than ``mostTiles``.
    package static func hasTiles(
        _ archive: any ArchiveReader, most: Int, unless isStopped: () -> Bool,
        skipped: (_ what: String, _ why: String, _ count: Int) -> Void,
        failed: (_ what: String, _ why: String) -> Void
    ) throws -> Bool {
        try check(archive, total: nil, most: most)
        var (found, seen) = (false, 0)
        try archive.forEachTile(stoppedBy: isStopped) { step in
            seen += 1
            guard seen <= most else { throw tooMany(archive, most) }
            switch step {
            case .skipped(let what, let why, let count): skipped(what, why, count)
            case .failed(let what, let why): failed(what, why)
            case .tile(let z, let x, let y, _, _, let tile):
                if let why = tile.objection { skipped("\(z)/\(x)/\(y)", why, 1) } else { found = true }
            }
            return !found && !isStopped()
        }
        return found
    }

    private static func check(_ archive: any ArchiveReader, total: Int?, most: Int) throws {
        let counting = archive as? any CountingReader
        let isOver = counting?.hasMoreTiles(than: most) ?? (total.map { $0 > most } ?? false)
        if isOver { throw tooMany(archive, most) }
    }

    private static func tooMany(_ archive: any ArchiveReader, _ most: Int) -> ArchiveError {
        ArchiveError(
            .tooMany,
            "\(archive.path) has more than \(most) tiles, each of which takes an entry of the cache: if that is meant, allow "
                + "more with --max-tiles")
    }

    /// How many of the imported entries the store still has: its limits may have taken some at once.
    public func countOfKept() throws -> Int {
        var selection = EntrySelection()
        selection.source = source
        var kept = 0
        try store.forEachEntry(where: selection) { entry in
            if entry.metadata.storedAt == now { kept += 1 }
        }
        return kept
    }

    private struct Filling {
        let plan: ArchiveImport
        let archive: any ArchiveReader
        let observer: any TransferObserver
        let total: Int?
        var report = TransferReport()
        let pipeline = PutPipeline()
        private var batch: [TilePut] = []
        private var onTheWay = 0
        private var bytesInBatch = 0
        // Tiles of one kind share one value, which the store then keeps once.
        private var responses: [TileContent: ResponseFields] = [:]
        private var lastResponse: (content: TileContent, fields: ResponseFields)?
        private var last: (key: TileKey, name: String)?
        private var seen = 0
        /// Batches that are not recorded yet, in their order.
        private var unrecorded: [[TileKey]] = []
        /// The tiles that were stored: only in MBTiles one may come twice, anywhere.
        private let stored: RecordSorter<UInt64>?

        init(plan: ArchiveImport, archive: any ArchiveReader, total: Int?, observer: any TransferObserver) {
            self.plan = plan
            self.archive = archive
            self.observer = observer
            self.total = total
            stored = archive.format == .mbtiles && !plan.keepsFormat ? RecordSorter() : nil
            batch.reserveCapacity(ArchiveImport.batchCount)
        }

        private mutating func response(for content: TileContent) -> ResponseFields {
            if let lastResponse, lastResponse.content == content { return lastResponse.fields }
            let fields =
                responses[content]
                ?? ResponseFields(mediaType: content.mediaType, contentEncoding: content.contentEncoding)
            responses[content] = fields
            lastResponse = (content, fields)
            return fields
        }

        mutating func take(_ step: ArchiveStep) throws {
            seen += 1
            guard seen <= plan.mostTiles else { throw ArchiveImport.tooMany(archive, plan.mostTiles) }
            switch step {
            case .skipped(let what, let why, let count): skip(what, why, count: count)
            case .failed(let what, let why):
                report.failed += 1
                observer.failed(what, why)
            case .tile(let z, let x, let y, let scale, let fileExtension, let tile):
                try take(tile, z: z, x: x, y: y, scale: scale, fileExtension)
            }
        }

        private mutating func take(
            _ tile: ArchivedTile, z: Int, x: Int, y: Int, scale: Int, _ fileExtension: String?
        ) throws {
            func name() -> String {
                let end = fileExtension.map { "." + $0 } ?? ""
                return "\(z)/\(x)/\(y)\(scale == 1 ? "" : "@\(scale)x")\(end)"
            }
            let format = plan.keepsFormat ? format(of: tile, fileExtension) : nil
            let key = TileKey(
                source: plan.source, tile: try TileAddress(z: z, x: x, y: y, scale: scale, format: format))
            // Only a folder can have two files of one tile side by side.
            if archive.format == .folder, let last, last.key == key {
                return skip(
                    name(), "the same key as \(last.name)\(plan.keepsFormat ? "" : " (--with-format keeps both)")")
            }
            if let why = tile.objection { return skip(name(), why) }
            // An earlier row of this archive is not newer, though it was stored just now.
            if plan.keepsNewer, let time = tile.modified ?? archive.modified,
                let there = try plan.store.entry(for: key), there.metadata.storedAt.seconds > time,
                there.metadata.storedAt != plan.now,
                // A power cut may have left it without its bytes.
                try there.blob.map({ try plan.store.hasSoundBlob($0, size: there.size) }) ?? true
            {
                return keepNewer(key)
            }
            if archive.format == .folder { last = (key, name()) }
            let content = TileContent(mediaType: tile.mediaType, contentEncoding: tile.contentEncoding)
            let metadata = TileMetadata(
                response: response(for: content), storedAt: plan.now,
                expires: plan.now.adding(seconds: Int64(plan.lifetime)))
            batch.append(TilePut(key: key, data: tile.data, metadata: metadata))
            bytesInBatch += tile.data.count
            report.bytes += tile.data.count
            let tiles = report.tiles + onTheWay + batch.count
            observer.advanced(
                TransferProgress(tiles: tiles, total: total, bytes: report.bytes, place: "\(z)/\(x)/\(y)"))
            if batch.count >= ArchiveImport.batchCount || bytesInBatch >= ArchiveImport.batchBytes { try putBatch() }
        }

        /// The format for the key: a file's own, else what the bytes are.
        private func format(of tile: ArchivedTile, _ fileExtension: String?) -> String? {
            if archive.format == .folder { return fileExtension }
            return TileContent.format(ofMediaType: tile.mediaType)
        }

        private mutating func keepNewer(_ key: TileKey) {
            report.keptNewer += 1
            skip(key.description, "the cache has a newer one")
        }

        private mutating func skip(_ what: String, _ why: String, count: Int = 1) {
            report.skipped += count
            observer.skipped(what, why, count: count)
        }

        /// Hands the batch on, and takes in what has come of earlier ones.
        private mutating func putBatch() throws {
            guard !batch.isEmpty else { return }
            onTheWay += batch.count
            if stored != nil { unrecorded.append(batch.map(\.key)) }
            try take(try pipeline.put(try PutInSteps(batch, into: plan.store)))
            // Which of two is newer can be told once the first is in the store.
            if plan.keepsNewer { try take(try pipeline.drain().done) }
            batch.removeAll(keepingCapacity: true)
            bytesInBatch = 0
        }

        /// Puts what is left, and waits for all of it.
        ///
        /// Also after a stop, so that what was counted as read is there. Who stops an import when all is read has what waits
        /// dropped.
        mutating func finish() throws {
            try putBatch()
            let wasStopped = report.wasStopped
            let (done, isComplete) = try pipeline.drain { !wasStopped && observer.wantsStop }
            try take(done)
            if !isComplete { report.wasStopped = true }
            try countRepeated()
        }

        /// Of several rows for one tile the last one counts; the others were stored, and replaced.
        private mutating func countRepeated() throws {
            guard let stored else { return }
            var last: UInt64?
            var repeated = 0
            try stored.forEach { tile in
                if tile == last { repeated += 1 }
                last = tile
            }
            guard repeated > 0 else { return }
            report.repeated = repeated
            report.tiles -= repeated
            skip(archive.path, "the file has several rows for one tile, and the last one counts", count: repeated)
        }

        private mutating func take(_ done: [PutInSteps.Summary]) throws {
            for summary in done {
                if let stored, !unrecorded.isEmpty {
                    let refused = Set(summary.refused.map(\.key))
                    for key in unrecorded.removeFirst() where refused.isEmpty || !refused.contains(key) {
                        guard let tile = key.tile else { continue }
                        try stored.add(TileID.number(z: tile.z, x: tile.x, y: tile.y))
                    }
                }
                report.tiles += summary.stored
                report.newBlobs += summary.newBlobs
                onTheWay -= summary.stored + summary.refused.count
                for (key, outcome) in summary.refused {
                    switch outcome {
                    case .olderThanStored: keepNewer(key)
                    case .largerThanSourceCapacity: skip(key.description, "larger than the capacity of its source")
                    case .largerThanCapacity, .stored: skip(key.description, "larger than the cache's whole capacity")
                    }
                }
            }
        }
    }
}

extension Timestamp {
    /// The time as the store keeps it.
    fileprivate var kept: Timestamp { min(max(self, .distantPast), .distantFuture) }
}
