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
    public var now: Timestamp
    /// How long the tiles are fresh, in seconds.
    public var lifetime = 7 * 86_400
    /// Whether the format becomes part of the key, for a source that has several.
    public var keepsFormat = false
    /// Whether a tile stays that was stored later than the archive (in a folder: the file) was written.
    ///
    /// Otherwise an imported tile replaces what is there.
    public var keepsNewer = false

    private static let batchCount = 256
    private static let batchBytes = 2 << 20

    /// Prepares an import.
    public init(store: TileStore, source: SourceName, now: Timestamp) {
        self.store = store
        self.source = source
        self.now = now
    }

    /// Imports all tiles, or as many as were done when the observer stopped it.
    ///
    /// - Throws: ``ArchiveError`` where the archive is damaged, `StoreError` where the store cannot be written; what was
    ///   imported so far stays.
    public func run(_ archive: any ArchiveReader, observer: any TransferObserver) throws -> TransferReport {
        var filling = Filling(plan: self, archive: archive, observer: observer)
        defer { filling.pipeline.close() }
        do {
            try archive.forEachTile { step in
                try filling.take(step)
                if observer.wantsStop { filling.report.wasStopped = true }
                return !filling.report.wasStopped
            }
        } catch let error as ArchiveError {
            // What could be read is as good as the rest would have been.
            try filling.finish()
            throw error
        }
        try filling.finish()
        return filling.report
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

        init(plan: ArchiveImport, archive: any ArchiveReader, observer: any TransferObserver) {
            self.plan = plan
            self.archive = archive
            self.observer = observer
            total = archive.tileCount
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
            switch step {
            case .skipped(let what, let why, let count): skip(what, why, count: count)
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
            if tile.data.isEmpty { return skip(name(), "it is empty") }
            // A picture's type was told from its bytes.
            if tile.mediaType?.hasPrefix("image/") != true, TileContent.isWebPage(tile.data) {
                return skip(name(), "it is a web page, not a tile")
            }
            if plan.keepsNewer, let time = tile.modified ?? archive.modified,
                let there = try plan.store.entry(for: key), there.metadata.storedAt.seconds > time
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
            take(try pipeline.put(try PutInSteps(batch, into: plan.store)))
            // Which of two is newer can be told once the first is in the store.
            if plan.keepsNewer { take(try pipeline.drain().done) }
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
            take(done)
            if !isComplete { report.wasStopped = true }
        }

        private mutating func take(_ done: [PutInSteps.Summary]) {
            for summary in done {
                report.tiles += summary.stored
                report.newBlobs += summary.newBlobs
                onTheWay -= summary.stored + summary.refused.count
                for (key, outcome) in summary.refused {
                    if outcome == .olderThanStored {
                        keepNewer(key)
                    } else {
                        skip(key.description, "larger than the cache's whole capacity")
                    }
                }
            }
        }
    }
}
