import ContentCoding
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Writes tiles into an archive, wherever they come from.
struct TileExport {
    let tiles: any ExportedTiles
    /// The map's name where nobody has given it one.
    let name: String
    let observer: any TransferObserver
    /// What to say in the package's metadata; zooms, bounds and format are filled in from the tiles.
    var metadata = ArchiveMetadata()
    /// Regions that go along, asked for when the tiles are written.
    var regions: () throws -> [ArchiveRegion] = { [] }
    /// Whether rows in a folder are counted from the south (TMS).
    var rowsFromSouth = false

    private struct Stopped: Error {}

    /// Writes the archive.
    ///
    /// - Parameters:
    ///   - path: A file, or for ``ArchiveFormat/folder`` a folder. What is there is replaced.
    ///   - format: The kind of archive.
    /// - Throws: ``ArchiveError``, and `StoreError` where a store cannot be read.
    func run(to path: String, format: ArchiveFormat) throws -> TransferReport {
        if format == .folder {
            var export = try FolderExport(
                tiles: tiles, path: path, rowsFromSouth: rowsFromSouth, observer: observer)
            return try export.run()
        }
        var report = TransferReport()
        do {
            var plan = try plan(&report)
            guard plan.count > 0 else { return report }
            let writer = try format.writer(path)
            // MBTiles' readers look at each tile; PMTiles says once for all how tiles are compressed.
            let packing = try format == .mbtiles ? .eachTile : PackagePlan.Packing.all(compression(plan))
            let tiles = try plan.numbered(packing)
            var filling = try Filling(export: self, plan: plan, packing: packing, observer: observer, report: report)
            try tiles.forEach { tile in
                try filling.take(tile, writer)
                if observer.wantsStop { throw Stopped() }
            }
            report = filling.report
            guard report.tiles > 0 else { return report }
            try writer.finish(try summary(plan, packing))
        } catch is Stopped {
            // A package that is not complete is none.
            report = TransferReport()
            report.wasStopped = true
        }
        return report
    }

    /// Goes through the manifest.
    private func plan(
        _ report: inout TransferReport
    ) throws -> PackagePlan {
        var plan = PackagePlan()
        var skipped = 0
        try tiles.forEachTile { tile in
            if observer.wantsStop { throw Stopped() }
            guard let tile, tile.size > 0 else {
                // Remembered absence and other resources are a normal part of a cache, and need no words.
                skipped += 1
                return
            }
            if try !plan.add(tile.address, tile.digest, tile.response) {
                skipped += 1
                observer.skipped(
                    tiles.name(of: tile.address), "another scale or format has its place in the package", count: 1)
            }
            observer.advanced(TransferProgress(tiles: plan.count, total: nil, bytes: 0, place: "the manifest"))
        }
        report.skipped += skipped
        return plan
    }

    /// How the tiles of a package are compressed that says it once for all.
    private func compression(_ plan: PackagePlan) throws -> PMTilesCompression {
        var isFirstGzip = false
        if let first = plan.firstPlain {
            if case .bytes(let data, _) = try tiles.bytes(of: first, { _ in true }) {
                isFirstGzip = Gzip.isMarked(data)
            }
        }
        return plan.commonCompression(isFirstGzip: isFirstGzip)
    }

    private func summary(_ plan: PackagePlan, _ packing: PackagePlan.Packing) throws -> ArchiveSummary {
        var metadata = metadata
        metadata.name = metadata.name ?? name
        metadata.tileFormat = plan.format
        metadata.zooms = plan.zooms
        if let box = plan.bounds {
            // What was said before is more precise, where it says the same area.
            if let said = metadata.bounds, Self.contains(box, said), Self.contains(said, box, slack: plan.zooms) {
                metadata.bounds = said
            } else {
                metadata.bounds = box
                metadata.center = nil
            }
            let bounds = metadata.bounds ?? box
            if metadata.center == nil {
                metadata.center = .init(
                    longitude: (bounds.west + bounds.east) / 2, latitude: (bounds.south + bounds.north) / 2,
                    zoom: plan.zooms?.lowerBound ?? 0)
            }
        }
        metadata.regions = try regions()
        guard case .all(let compression) = packing else { return ArchiveSummary(metadata: metadata) }
        return ArchiveSummary(metadata: metadata, compression: compression)
    }

    /// Whether a box lies in another one, up to a tile of the largest zoom if so wanted.
    private static func contains(_ outer: GeoBox, _ inner: GeoBox, slack zooms: ClosedRange<Int>? = nil) -> Bool {
        let slack = zooms.map { 360 / Double(1 << $0.upperBound) } ?? 1e-6
        return inner.west <= inner.east && outer.west - slack <= inner.west && outer.south - slack <= inner.south
            && outer.east + slack >= inner.east && outer.north + slack >= inner.north
    }

    /// Fills a package with the tiles of a plan.
    private struct Filling {
        let export: TileExport
        let plan: PackagePlan
        let packing: PackagePlan.Packing
        let observer: any TransferObserver
        var report: TransferReport
        private var table: ContentTable

        init(
            export: TileExport, plan: PackagePlan, packing: PackagePlan.Packing, observer: any TransferObserver,
            report: TransferReport
        ) throws {
            self.export = export
            self.plan = plan
            self.packing = packing
            self.observer = observer
            self.report = report
            table = try ContentTable(count: plan.contentCount)
        }

        mutating func take(_ tile: PackagePlan.Tile, _ writer: any ArchiveWriter) throws {
            var place = try table.place(of: tile.content)
            if place == nil {
                guard let (data, isExpected) = try load(tile) else { return }
                place = .init(position: try writer.add(data), length: UInt64(data.count))
                // One that has changed since the plan was made is this tile's alone.
                if isExpected, let place { try table.set(tile.content, place) }
            }
            guard let place else { return }
            try writer.place(tile.tile, content: place.position, length: Int(place.length))
            report.tiles += 1
            report.bytes += Int(place.length)
            observer.advanced(
                TransferProgress(
                    tiles: report.tiles, total: plan.count, bytes: report.bytes,
                    place: TileID.tile(tile.tile).map { "\($0.z)/\($0.x)/\($0.y)" } ?? ""))
        }

        /// A tile's bytes for the package, and whether they are those that it was planned with.
        private mutating func load(_ tile: PackagePlan.Tile) throws -> (Data, Bool)? {
            guard let place = TileID.tile(tile.tile) else { return nil }
            let variant = plan.variants[Int(tile.variant)]
            let key = try TileAddress(
                z: place.z, x: place.x, y: place.y, scale: variant.scale, format: variant.format)
            let data: Data
            let isExpected: Bool
            switch try export.tiles.bytes(of: key, { $0.start == tile.digest }) {
            case .bytes(let bytes, let digest):
                data = bytes
                isExpected = digest.start == tile.digest
            case .gone: return skip(key, "it was removed meanwhile")
            case .damaged: return fail(key, "its bytes are damaged or missing")
            case .unreadable(let why): return fail(key, why)
            }
            guard !data.isEmpty else { return skip(key, "it is empty") }
            switch tile.recoding {
            case .compress: return (Gzip.isMarked(data) ? data : try Gzip.encode(data), isExpected)
            case .none where packing != .all(.none) || !Gzip.isMarked(data): return (data, isExpected)
            case .none, .unpack:
                guard let plain = Gzip.tile(data) else {
                    return fail(key, "its gzip encoding is broken, or it is too large")
                }
                return (plain, isExpected)
            case .leaveOut:
                let encoding = try export.tiles.contentEncoding(of: key) ?? "another"
                return skip(key, "it is stored with the content encoding \(encoding), \(cannotSay)")
            }
        }

        private var cannotSay: String {
            switch packing {
            case .eachTile: "which MBTiles cannot say"
            case .all(let compression):
                "and the package says of all tiles alike that their compression is \(compression)"
            }
        }

        private mutating func skip(_ tile: TileAddress, _ why: String) -> (Data, Bool)? {
            report.skipped += 1
            observer.skipped(export.tiles.name(of: tile), why, count: 1)
            return nil
        }

        private mutating func fail(_ tile: TileAddress, _ why: String) -> (Data, Bool)? {
            report.failed += 1
            observer.failed(export.tiles.name(of: tile), why)
            return nil
        }
    }
}
