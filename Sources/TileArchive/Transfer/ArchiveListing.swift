import TileSets
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The tiles of an archive with their digests, each key once, those of one place together.
///
/// Everything is read and hashed, but for a published set, which knows its digests. Sorted in bounded memory, with a temporary file
/// for what does not fit: 64 bytes a tile.
struct ArchiveListing {
    let archive: any ArchiveReader
    /// An archive with more is refused: a small file can claim billions.
    let mostTiles: Int
    let observer: any TransferObserver

    /// A tile, and which of several of one key counts: the first in this order.
    private struct Record: Comparable, BitwiseCopyable {
        var place: UInt64
        var scale: UInt8
        var order: UInt64
        var response: UInt32
        var size: UInt32
        var digest: BlobDigest

        static func < (a: Record, b: Record) -> Bool {
            if a.place != b.place { return a.place < b.place }
            return a.scale == b.scale ? a.order < b.order : a.scale < b.scale
        }
    }

    /// A tile of the list.
    struct Tile {
        var address: TileAddress
        var digest: BlobDigest
        var size: Int
        var response: ResponseFields
    }

    /// How much else there is.
    struct Others {
        /// What is no tile, or another one for the same key.
        var skipped = 0
        /// Files that cannot be read.
        var failed = 0
        /// Whether the observer stopped it, so that the list is not whole.
        var wasStopped = false
    }

    /// Goes through the tiles, after all of them were read.
    func forEach(_ body: (Tile) throws -> Void) throws -> Others {
        if let counting = archive as? any CountingReader, counting.hasMoreTiles(than: mostTiles) {
            throw tooManyTiles(archive, mostTiles)
        }
        var others = Others()
        if let set = archive as? SetReader {
            try set.forEachListed { tile in
                guard !others.wasStopped else { return }
                others.wasStopped = observer.wantsStop
                let response = ResponseFields(mediaType: tile.kind.type, contentEncoding: tile.kind.coding)
                try body(Tile(address: tile.key.tile, digest: tile.blob, size: tile.size, response: response))
            }
            return others
        }
        let (records, responses) = try read(&others)
        if others.wasStopped { return others }
        var before: (place: UInt64, scale: UInt8)?
        try records.forEach { record in
            if let before, before == (record.place, record.scale) {
                others.skipped += 1
                return
            }
            before = (record.place, record.scale)
            guard let place = TileID.tile(record.place) else { return }
            try body(
                Tile(
                    address: try TileAddress(z: place.z, x: place.x, y: place.y, scale: Int(record.scale)),
                    digest: record.digest, size: Int(record.size), response: responses[Int(record.response)]))
        }
        return others
    }

    private func read(_ others: inout Others) throws -> (RecordSorter<Record>, [ResponseFields]) {
        let records = RecordSorter<Record>(memory: 16 << 20)
        var (responses, numbers) = ([ResponseFields](), [ResponseFields: UInt32]())
        // Equal tiles that follow each other, such as a run of PMTiles, are hashed once.
        var last: (data: Data, digest: BlobDigest)?
        var (bytes, seen) = (0, 0)
        var found = others
        try archive.forEachTile(stoppedBy: { observer.wantsStop }) { step, rank in
            seen += 1
            guard seen <= mostTiles else { throw tooManyTiles(archive, mostTiles) }
            switch step {
            case .skipped(let what, let why, let count):
                found.skipped += count
                observer.skipped(what, why, count: count)
            case .failed(let what, let why):
                found.failed += 1
                observer.failed(what, why)
            case .tile(let z, let x, let y, let scale, _, let content):
                if let why = content.objection {
                    found.skipped += 1
                    observer.skipped("\(archive.path): \(z)/\(x)/\(y)", why, count: 1)
                    break
                }
                let known = last.flatMap { $0.data == content.data ? $0.digest : nil }
                let digest = known ?? content.data.withUnsafeBytes { BlobDigest(hashing: $0) }
                last = (content.data, digest)
                let response = ResponseFields(
                    mediaType: content.mediaType, contentEncoding: content.contentEncoding)
                let number = numbers[response] ?? UInt32(clamping: responses.count)
                if number == responses.count {
                    responses.append(response)
                    numbers[response] = number
                }
                try records.add(
                    Record(
                        place: TileID.number(z: z, x: x, y: y), scale: UInt8(clamping: scale),
                        order: order(of: records.count, rank), response: number,
                        size: UInt32(clamping: content.data.count), digest: digest))
                bytes += content.data.count
                observer.advanced(
                    TransferProgress(tiles: records.count, total: nil, bytes: bytes, place: "\(z)/\(x)/\(y)"))
            }
            found.wasStopped = observer.wantsStop
            return !found.wasStopped
        }
        others = found
        return (records, responses)
    }

    /// Of several tiles for one key that one is first which a look-up finds.
    private func order(of number: Int, _ rank: Int) -> UInt64 {
        switch archive.format {
        case .mbtiles: UInt64.max - UInt64(number)
        case .folder: UInt64(rank)
        case .pmtiles, .set: UInt64(number)
        }
    }

    /// A tile of the list as it is now.
    func content(of address: TileAddress) throws -> ArchivedTile? {
        switch archive {
        case let set as SetReader: try set.tile(address)
        case let folder as FolderReader:
            try folder.tile(z: address.z, x: address.x, y: address.y, scale: address.scale) { $0.objection == nil }
        default: try archive.tile(z: address.z, x: address.x, y: address.y)
        }
    }
}
