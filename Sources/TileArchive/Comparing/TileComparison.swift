import TileStore

/// What a comparison of two collections of tiles has found.
package struct ComparisonReport: Sendable, Equatable {
    /// Tiles that only the new one has.
    package var added = 0
    /// Tiles that both have, with different bytes.
    package var changed = 0
    /// Tiles that only the old one has.
    package var removed = 0
    /// Tiles that both have, with the same bytes.
    package var same = 0
    /// Different contents of the new one that no tile of the old one has.
    package var newBlobs = 0
    /// The sum of their sizes.
    package var newBytes = 0
    /// What was passed over: no tile, without bytes, or another variant of a tile that was compared.
    package var skipped = 0
    /// Files that could not be read: whether these tiles differ is not known.
    package var failed = 0
    /// Whether the observer stopped it; nothing else is known then.
    package var wasStopped = false

    package init() {}
}

/// Compares two collections of tiles by the digests of their bytes.
///
/// Digests and places are sorted in bounded memory, with temporary files for what does not fit: 64 bytes for each tile of
/// both, and 48 for each of the old one and each that differs.
package struct TileComparison {
    private let old: any TileDigests
    private let new: any TileDigests
    private let memory: Int
    private let observer: any TransferObserver

    /// - Parameter memory: So many bytes for each of the two sorted lists.
    package init(
        old: any TileDigests, new: any TileDigests, observer: any TransferObserver, memory: Int = 8 << 20
    ) {
        (self.old, self.new, self.observer, self.memory) = (old, new, observer, memory)
    }

    private struct Stopped: Error {}

    /// Compares them.
    ///
    /// Tiles are distinguished as far as both sides do. Where one has several that the other does not distinguish, the one
    /// counts that an export would take: the smallest scale, then the one without a format, then the first format by name.
    /// - Parameter list: A file for the keys of the tiles that differ, one a line; it appears when it is complete.
    /// - Throws: ``ArchiveError`` or `StoreError`.
    package func run(list: String? = nil) throws -> ComparisonReport {
        do {
            // Before anything is read: a path that cannot be written is told at once.
            let keys = try list.map { try KeyFile($0) }
            var walk = Walk(detail: min(old.detail, new.detail), keys: keys, memory: memory)
            for (tiles, isNew) in [(old, false), (new, true)] {
                let others = try tiles.forEachTile(observer: observer) { tile in
                    if observer.wantsStop { throw Stopped() }
                    try walk.add(tile, isNew: isNew, laterCounts: tiles.laterCounts)
                    observer.advanced(
                        TransferProgress(
                            tiles: walk.count, total: nil, bytes: walk.bytes,
                            place: "\(tile.address.z)/\(tile.address.x)/\(tile.address.y)"))
                }
                if observer.wantsStop { throw Stopped() }
                walk.report.skipped += others.skipped
                walk.report.failed += others.failed
            }
            let report = try walk.compared { if observer.wantsStop { throw Stopped() } }
            try keys?.finish()
            return report
        } catch is Stopped {
            var report = ComparisonReport()
            report.wasStopped = true
            return report
        }
    }

    /// What distinguishes tiles of one place.
    private struct Variant: Hashable {
        var source: SourceName?
        var scale: Int
        var format: String?

        /// Without what is not distinguished.
        func reduced(to detail: TileDetail) -> Variant {
            switch detail {
            case .key: self
            case .scale: Variant(source: nil, scale: scale, format: nil)
            case .place: Variant(source: nil, scale: 1, format: nil)
            }
        }

        /// Whether an export would take this one.
        func precedes(_ other: Variant) -> Bool { (scale, format ?? "") < (other.scale, other.format ?? "") }
    }

    /// A tile of either side, in the order in which they are compared.
    private struct Tile: Comparable, BitwiseCopyable {
        var place: UInt64
        /// The number of the variant, as far as it is distinguished.
        var group: UInt32
        var isNew: Bool
        /// Which of several with the same address counts: the first in this order.
        var order: UInt64
        /// The number of the whole variant.
        var variant: UInt32
        var size: UInt32
        var digest: BlobDigest

        static func < (a: Tile, b: Tile) -> Bool {
            if a.place != b.place { return a.place < b.place }
            if a.group != b.group { return a.group < b.group }
            if a.isNew != b.isNew { return b.isNew }
            return a.order < b.order
        }
    }

    /// A content of either side.
    private struct Content: Comparable, BitwiseCopyable {
        var digest: BlobDigest
        var size: UInt32
        var isNew: Bool

        static func < (a: Content, b: Content) -> Bool {
            a.digest != b.digest ? a.digest < b.digest : !a.isNew && b.isNew
        }
    }

    /// Numbers for variants.
    private struct VariantTable {
        private(set) var all: [Variant] = []
        private var numbers: [Variant: UInt32] = [:]
        private var last: (variant: Variant, number: UInt32)?

        mutating func number(of variant: Variant) -> UInt32 {
            if let last, last.variant == variant { return last.number }
            let number = numbers[variant] ?? UInt32(clamping: all.count)
            if number == all.count {
                all.append(variant)
                numbers[variant] = number
            }
            last = (variant, number)
            return number
        }
    }

    /// Collects the tiles of both sides, then goes along them in one order.
    private struct Walk {
        let detail: TileDetail
        let keys: KeyFile?
        var report = ComparisonReport()
        private(set) var count = 0
        private(set) var bytes = 0
        private let tiles: RecordSorter<Tile>
        private let contents: RecordSorter<Content>
        private var variants = VariantTable()
        private var groups = VariantTable()
        /// The tiles of the present place and group that count.
        private var current: (old: Tile?, new: Tile?)

        init(detail: TileDetail, keys: KeyFile?, memory: Int) {
            self.detail = detail
            self.keys = keys
            tiles = RecordSorter(memory: memory)
            contents = RecordSorter(memory: memory)
        }

        mutating func add(_ tile: DigestedTile, isNew: Bool, laterCounts: Bool) throws {
            let address = tile.address
            let variant = Variant(source: tile.source, scale: address.scale, format: address.format)
            let size = UInt32(clamping: tile.size)
            try tiles.add(
                Tile(
                    place: TileID.number(z: address.z, x: address.x, y: address.y),
                    group: groups.number(of: variant.reduced(to: detail)), isNew: isNew,
                    order: laterCounts ? UInt64.max - UInt64(count) : UInt64(tile.rank) << 48 | UInt64(count),
                    variant: variants.number(of: variant), size: size, digest: tile.digest))
            // Also of tiles that will not be compared: the old side has these bytes.
            if !isNew { try contents.add(Content(digest: tile.digest, size: size, isNew: false)) }
            count += 1
            bytes += tile.size
        }

        /// Compares what was added.
        mutating func compared(_ check: () throws -> Void) throws -> ComparisonReport {
            try tiles.forEach { tile in
                let last = current.old ?? current.new
                if let last, last.place != tile.place || last.group != tile.group {
                    try settle()
                    try check()
                }
                choose(tile)
            }
            try settle()
            var known: BlobDigest?
            try contents.forEach { content in
                try check()
                // Those of the old side come first.
                guard content.digest != known else { return }
                known = content.digest
                guard content.isNew else { return }
                report.newBlobs += 1
                report.newBytes += Int(content.size)
            }
            return report
        }

        private mutating func choose(_ tile: Tile) {
            let rival = tile.isNew ? current.new : current.old
            if let rival {
                report.skipped += 1
                guard variants.all[Int(tile.variant)].precedes(variants.all[Int(rival.variant)]) else { return }
            }
            if tile.isNew { current.new = tile } else { current.old = tile }
        }

        /// Compares the tiles of the present place and group.
        private mutating func settle() throws {
            defer { current = (nil, nil) }
            switch (current.old, current.new) {
            case (let old?, let new?) where old.digest == new.digest:
                report.same += 1
                return
            case (_?, let new?):
                report.changed += 1
                try write(new)
            case (nil, let new?):
                report.added += 1
                try write(new)
            case (let old?, nil):
                report.removed += 1
                try keys?.write(key(of: old))
            case (nil, nil): break
            }
        }

        /// Takes note of a tile whose bytes the old side does not have in its place.
        private mutating func write(_ tile: Tile) throws {
            try contents.add(Content(digest: tile.digest, size: tile.size, isNew: true))
            try keys?.write(key(of: tile))
        }

        /// The tile's key as lists have it: `source/z/x/y@2x.png`, without the source where none is known.
        private func key(of tile: Tile) throws -> String {
            guard let place = TileID.tile(tile.place) else { return "" }
            let variant = variants.all[Int(tile.variant)]
            let address = try TileAddress(
                z: place.z, x: place.x, y: place.y, scale: variant.scale, format: variant.format)
            guard let source = variant.source else {
                return "\(place.z)/\(place.x)/\(place.y)" + (variant.scale == 1 ? "" : "@\(variant.scale)x")
            }
            return TileKey(source: source, tile: address).description
        }
    }
}

/// A file of keys, one a line, that appears when it is complete.
private final class KeyFile {
    private let output: OutputFile
    private let file: ScratchFile

    init(_ path: String) throws {
        output = try OutputFile(path)
        file = try ScratchFile(creating: output)
    }

    func write(_ key: String) throws {
        var line = key + "\n"
        try line.withUTF8 { try file.append(UnsafeRawBufferPointer($0)) }
    }

    func finish() throws {
        try file.flush()
        try output.commit()
    }
}
