package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a publisher tells, and asks.
package struct SetProgress: Sendable {
    /// Told how many of how many tiles are published, and how many bytes were written.
    package var published: @Sendable (_ tiles: Int, _ total: Int, _ bytes: Int) -> Void = { _, _, _ in }
    /// Asked now and then whether to stop.
    package var wantsStop: @Sendable () -> Bool = { false }

    package init() {}
}

/// What publishing did.
package struct PublishReport: Sendable {
    /// Tiles of the set.
    package var tiles = 0
    /// Their different blobs.
    package var blobs = 0
    /// The bytes of these.
    package var bytes = 0
    /// Blobs that were written, and their bytes.
    package var newBlobs = 0
    package var newBytes = 0
    /// Bytes of lists and deltas that were written.
    package var listBytes = 0
    /// How many of the new blobs were cloned or linked instead of copied.
    package var shared = 0
    /// Entries that are no tiles with bytes, or whose bytes a set cannot hold.
    package var skipped = 0
    /// The root.
    package var root: BlobDigest?
    /// Whether the set was what it was before.
    package var isUnchanged = false
}

/// Makes a published set of tiles, or renews it.
package struct SetPublisher {
    /// The tiles.
    package let tiles: any PublishableTiles
    /// The name of their source.
    package let source: SourceName
    /// What is known of the source.
    package var metadata: [String: JSONValue] = [:]
    /// For how long the tiles are fresh where they are pulled to.
    package var lifetime: Int?
    /// How many former roots stay reachable.
    package var keep = 8
    /// How blobs get there without being written.
    package var copier: BlobCopier? = .cloning
    package var progress = SetProgress()
    /// The time of day.
    package var now: Timestamp

    package init(_ tiles: any PublishableTiles, source: SourceName, now: Timestamp) {
        self.tiles = tiles
        self.source = source
        self.now = now
    }

    /// Publishes into a folder, which is there.
    ///
    /// - Throws: ``SetError``, `FileError`, `StoreError`; the old set is in place then, and whole.
    package func publish(into files: any FileSystem) throws -> PublishReport {
        var report = PublishReport()
        var folder: SetFolder?
        var attempts = 0
        while true {
            let list = try list(&report)
            guard !list.tiles.isEmpty else { return report }
            try check(list)
            let entered = try folder ?? SetFolder(files)
            folder = entered
            do {
                try publish(list, into: entered, &report)
                return report
            } catch let change as TileChanged {
                // The cache is in use. What was written of the list that is past is used for the next one.
                attempts += 1
                guard attempts < Self.mostAttempts else {
                    throw SetError(
                        .unreachable,
                        "\(source)/\(change.tile.key.text) and other tiles change as quickly as they are published: publish while "
                            + "fewer are stored or evicted; the old set is in place")
                }
            }
        }
    }

    /// How often the cache's tiles are listed at most, as those that were listed go meanwhile.
    private static let mostAttempts = 8

    /// A tile is not what it was when it was listed.
    private struct TileChanged: Error {
        let tile: SetTile
    }

    private func publish(_ list: SetList, into folder: SetFolder, _ report: inout PublishReport) throws {
        let old = try folder.document()
        report.root = list.root.digest
        report.isUnchanged = old?.root == list.root.digest
        let former = try FormerSet(old.map { ($0.root, $0.rootLength) }, in: folder, list)
        try write(list, former, folder, &report)
        let deltas = try deltas(former, list, old, folder, &report)
        let kept = try kept(old, list.root.digest, folder)
        try folder.publish(
            SetDocument(
                name: source.description, time: now, root: list.root.digest, rootLength: list.root.bytes.count,
                tiles: list.tiles.count, blobs: report.blobs, bytes: report.bytes, lifetime: lifetime,
                metadata: metadata, deltas: deltas, kept: kept))
    }

    /// The roots that stay reachable beside a new one.
    ///
    /// The last ones, and all that were replaced within a day, which somebody may be reading. Those go whose lists are not all there.
    private func kept(_ old: SetDocument?, _ root: BlobDigest, _ folder: SetFolder) throws -> [SetDocument.Kept] {
        guard let old else { return [] }
        let last = SetDocument.Kept(root: old.root, length: old.rootLength, replaced: now)
        let roots = ([last] + old.former).filter { $0.root != root }
        let recent = now.adding(seconds: -SetSweep.age)
        let kept = roots.enumerated().filter { $0.offset < keep || $0.element.replaced >= recent }
            .prefix(SetBounds.kept).map(\.element)
        var present = Set<BlobDigest>()
        return try kept.filter { kept in
            guard let bytes = try folder.list(kept.root, length: kept.length), let root = try? SetRoot(bytes) else {
                return false
            }
            return try root.items.allSatisfy { item in
                if present.contains(item.digest) { return true }
                guard try folder.has(list: item.digest) else { return false }
                present.insert(item.digest)
                return true
            }
        }
    }

    /// The tiles that there are.
    private func list(_ report: inout PublishReport) throws -> SetList {
        report.bytes = 0
        var listed: [SetTile] = []
        var blobs: [BlobDigest: Int] = [:]
        report.skipped = try tiles.forEachTile { tile in
            listed.append(tile)
            if let size = blobs.updateValue(tile.size, forKey: tile.blob) {
                // A set that is published anew may contradict itself.
                guard size == tile.size else { throw damaged(tile) }
            } else {
                report.bytes += tile.size
            }
            if listed.count & 1023 == 0, progress.wantsStop() {
                throw SetError(.stopped, "interrupted: nothing was published")
            }
        }
        (report.tiles, report.blobs) = (listed.count, blobs.count)
        return SetList(listed)
    }

    private func check(_ list: SetList) throws {
        guard list.chunks.count <= SetBounds.chunks, list.root.bytes.count <= SetBounds.root,
            list.chunks.allSatisfy({ $0.length <= SetBounds.chunk })
        else {
            throw SetError(
                .tooLarge,
                "\(list.tiles.count) tiles are too many for one set: publish parts of it, by --zoom or --bbox")
        }
    }

    /// Writes the chunks and the blobs that are not there; those of the old set are, unless somebody has damaged it.
    private func write(
        _ list: SetList, _ former: FormerSet, _ folder: SetFolder, _ report: inout PublishReport
    ) throws {
        var known = Set<BlobDigest>()
        var copier = copier
        var done = 0
        for chunk in list.chunks {
            done += chunk.range.count
            let isOfOld = former.chunks.contains(chunk.digest)
            for tile in list.tiles[chunk.range] where known.insert(tile.blob).inserted {
                if progress.wantsStop() {
                    throw SetError(
                        .stopped,
                        "interrupted: the old set is in place; run it again, and it goes on with what is written")
                }
                if try !folder.has(tile.blob, size: tile.size, isOfSet: isOfOld || former.blobs.contains(tile.blob)) {
                    try write(tile, folder, &copier, &report)
                }
            }
            progress.published(done, list.tiles.count, report.newBytes)
            if try isOfOld && folder.list(chunk.digest, length: chunk.length) != nil { continue }
            report.listBytes += try folder.place(list: list.encoded(chunk), chunk.digest)
        }
        report.listBytes += try folder.place(list: list.root.bytes, list.root.digest)
    }

    /// Writes a tile's bytes.
    private func write(
        _ tile: SetTile, _ folder: SetFolder, _ copier: inout BlobCopier?, _ report: inout PublishReport
    ) throws {
        let path = SetPaths.blob(tile.blob)
        var isShared = false
        if let copy = copier, let file = tiles.file(of: tile) {
            isShared = try share(tile, file, path, folder, copy)
            if !isShared { copier = nil }
        }
        if isShared {
            report.shared += 1
        } else {
            let bytes = try bytes(of: tile)
            try bytes.withUnsafeBytes { try folder.place(path, bytes: $0) }
        }
        report.newBlobs += 1
        report.newBytes += tile.size
    }

    /// Clones or links a blob; `false` where that is not possible.
    private func share(
        _ tile: SetTile, _ file: String, _ path: String, _ folder: SetFolder, _ copier: BlobCopier
    ) throws -> Bool {
        var isMade = false
        do {
            try folder.place(path) { part in
                guard try copier.make(file, "\(folder.location)/\(part)") == .made else {
                    throw SetError(.invalid, "")
                }
                isMade = true
                // Hashed as it will be served.
                guard try folder.read(part, limit: tile.size)?.digest == tile.blob else { throw damaged(tile) }
            }
        } catch let error as SetError where !isMade && error.code == .invalid { return false } catch let error
            as FileError where error.isAbsence && !isMade
        {
            throw try absence(of: tile)
        }
        return true
    }

    /// A tile's bytes, hashed.
    private func bytes(of tile: SetTile) throws -> [UInt8] {
        guard let bytes = try tiles.bytes(of: tile), bytes.count == tile.size, bytes.digest == tile.blob else {
            throw try absence(of: tile)
        }
        return bytes
    }

    /// What it means that a tile's bytes are not there, or are others.
    private func absence(of tile: SetTile) throws -> any Error {
        try tiles.lists(tile) ? damaged(tile) : TileChanged(tile: tile)
    }

    private func damaged(_ tile: SetTile) -> SetError {
        SetError(
            .damaged,
            "the bytes of tile \(source)/\(tile.key.text) are damaged: \(tiles.advice); the old set is in place")
    }

    /// The deltas to the new set: from the old one, and from the older ones that had deltas to it.
    ///
    /// Those that are missing or damaged are made anew from the lists of both roots. Whoever has a root that has no delta takes the whole
    /// list.
    private func deltas(
        _ former: FormerSet, _ list: SetList, _ old: SetDocument?, _ folder: SetFolder, _ report: inout PublishReport
    ) throws -> [SetDocument.Delta] {
        guard let old else { return [] }
        var result: [SetDocument.Delta] = []
        func offer(_ delta: SetDelta) throws {
            // One that is as long as the list is of no use.
            guard delta.from != list.root.digest, result.count < SetBounds.deltas, let bytes = delta.encoded,
                bytes.count < list.chunks.reduce(0, { $0 + $1.length })
            else { return }
            report.listBytes += try folder.place(list: bytes, bytes.digest)
            result.append(.init(from: delta.from, digest: bytes.digest, length: bytes.count))
        }
        var step: SetDelta?
        if !report.isUnchanged, former.isComplete {
            let made = former.delta(from: old.root, to: list)
            try offer(made)
            step = made
        }
        for earlier in old.deltas {
            let delta = try folder.delta(earlier, to: old.root)
            if let delta, report.isUnchanged {
                // It stays, as it leads to this root.
                result.append(.init(from: delta.from, digest: earlier.digest, length: earlier.length))
            } else if let delta, let step {
                try offer(delta.followed(by: step))
            } else if let root = old.kept.first(where: { $0.root == earlier.from }) {
                let other = try FormerSet((root.root, root.length), in: folder, list)
                if other.isComplete { try offer(other.delta(from: root.root, to: list)) }
            }
        }
        return result
    }
}

/// What of the set that is there differs from the new one.
struct FormerSet {
    /// The chunks that both have.
    private(set) var chunks = Set<BlobDigest>()
    /// The tiles of its other chunks.
    private(set) var tiles: [SetTile] = []
    /// The blobs of these, which need not be written.
    private(set) var blobs = Set<BlobDigest>()
    /// Whether all of its lists could be read.
    private(set) var isComplete = true

    /// - Parameter version: A root, and the length of its JSON; `nil` where there is no set.
    init(_ version: (root: BlobDigest, length: Int)?, in folder: SetFolder, _ list: SetList) throws {
        guard let version, let bytes = try folder.list(version.root, length: version.length),
            let root = try? SetRoot(bytes)
        else {
            isComplete = false
            return
        }
        let new = Set(list.chunks.map(\.digest))
        for item in root.items {
            if new.contains(item.digest) {
                chunks.insert(item.digest)
            } else if let bytes = try folder.list(item.digest, length: item.length),
                let tiles = try? SetList.decode(bytes, of: item)
            {
                self.tiles.append(contentsOf: tiles)
                blobs.formUnion(tiles.lazy.map(\.blob))
            } else {
                // Its tiles are written as if they were new.
                isComplete = false
            }
        }
    }

    /// What leads from it to the new one, if it is complete.
    func delta(from root: BlobDigest, to list: SetList) -> SetDelta {
        SetDelta(from: root, tiles, to: list.root.digest, list.tiles(outside: chunks))
    }
}

extension SetList {
    /// The tiles of all chunks but some.
    func tiles(outside chunks: Set<BlobDigest>) -> [SetTile] {
        self.chunks.filter { !chunks.contains($0.digest) }.flatMap { tiles[$0.range] }
    }
}

extension SetTile {
    /// A cache's entry as a set has it; `nil` if it is no tile, has no bytes, or other bytes than sets hold.
    package init?(_ entry: TileEntry) {
        let response = entry.metadata.response
        guard let tile = entry.key.tile, let blob = entry.blob, response.status == 200 else { return nil }
        self.init(tile, blob, size: entry.size, mediaType: response.mediaType, coding: response.contentEncoding)
    }

    /// A tile as a set has it; `nil` if sets do not hold such bytes.
    package init?(_ tile: TileAddress, _ blob: BlobDigest, size: Int, mediaType: String?, coding: String?) {
        guard (1...SetBounds.tile).contains(size) else { return nil }
        // Parameters of a type say nothing about tiles; a type that sets do not have is left to the bytes.
        let type = mediaType.map { $0.prefix { $0 != ";" && $0 != " " }.lowercased() }
        let coding = coding.map { $0.lowercased() == "x-gzip" ? "gzip" : $0.lowercased() }
            .flatMap { $0.isEmpty || $0 == "identity" ? nil : $0 }
        guard let kind = SetKind(type: type.flatMap { SetKind.types.contains($0) ? $0 : nil }, coding: coding) else {
            return nil
        }
        self.init(key: SetKey(tile), blob: blob, size: size, kind: kind)
    }
}
