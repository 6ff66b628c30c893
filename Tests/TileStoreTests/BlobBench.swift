import Foundation
import TileStoreTesting

@testable import TileStore

/// What is done to a folder of blobs.
enum BlobStep {
    /// Writes a blob where it belongs.
    case place(Int)
    /// Stages a blob and renames it to its place, over whatever is there.
    case publish(Int)
    /// The same in pieces.
    case pieces(Int)
    /// Stages a body and gives it up.
    case giveUp(Int)
    case unlink([Int])
    /// Damages a blob's file and sets it aside.
    case damage(Int)
    /// Somebody removes a blob's folder, or the one of staged files.
    case loseShard(Int)
    case loseStaging

    static func script(_ count: Int, _ random: inout SplitMix64) -> [BlobStep] {
        (0..<count).map { _ in
            let blob = random.below(BlobBench.payloads.count)
            switch random.below(12) {
            case 0...2: return .place(blob)
            case 3...5: return .publish(blob)
            case 6: return .pieces(blob)
            case 7: return .giveUp(blob)
            case 8: return .unlink([blob, random.below(BlobBench.payloads.count)])
            case 9: return .damage(blob)
            case 10: return random.oneIn(3) ? .loseStaging : .loseShard(blob)
            default: return .unlink([blob])
            }
        }
    }
}

/// A folder of blobs alone, without entries, beside what should be in it.
final class BlobBench {
    static let payloads: [Data] = (0..<8).map { number in
        var random = SplitMix64(seed: UInt64(number))
        return Data((0..<(1 + number * 40)).map { _ in UInt8(truncatingIfNeeded: random.next()) })
    }
    static let digests = payloads.map { $0.withUnsafeBytes { BlobDigest(hashing: $0) } }

    let clock = ManualClock()
    let disk: SimulatedDisk
    private(set) var files: SimulatedFileSystem
    private(set) var blobs: BlobFolder
    private var lock: FolderLock
    private let isDurable: Bool
    private var seed: UInt64 = 1
    /// The blobs that are in place.
    private(set) var expected: Set<Int> = []
    /// Those that the step that failed was about: they may be as before it or as after it.
    private(set) var unsure: Set<Int> = []

    init(durable: Bool = false, recordsChanges: Bool = false) throws {
        disk = SimulatedDisk(clock: clock, blockSize: 64, recordsChanges: recordsChanges)
        isDurable = durable
        (files, blobs, lock) = Self.process(disk, clock, 1, durable)
        try CacheFolder.makeFolders(files)
        try files.syncFolder("")
        try lock.open(readOnly: false)
        try lock.take(wait: 0)
    }

    private static func process(
        _ disk: SimulatedDisk, _ clock: ManualClock, _ seed: UInt64, _ durable: Bool
    ) -> (SimulatedFileSystem, BlobFolder, FolderLock) {
        let files = SimulatedFileSystem(disk)
        let environment = clock.environment(files, seed: seed)
        return (
            files, BlobFolder(files, isDurable: durable, random: environment.random),
            FolderLock(environment, LockGate())
        )
    }

    /// The process dies and another one goes on.
    func restart() throws {
        files.kill()
        seed += 1
        (files, blobs, lock) = Self.process(disk, clock, seed, isDurable)
        // After a power cut these may be gone.
        try CacheFolder.makeFolders(files)
        try lock.open(readOnly: false)
        try lock.take(wait: 0)
    }

    /// The right to change the folder.
    func hold() throws -> FolderHold {
        guard let hold = try lock.confirm() else { throw FileError("confirm", "lock", ENOENT) }
        return hold
    }

    /// Tables in which no blob is named.
    private func tables() -> Tables { Tables(blockSize: 64, hashSeed: 1) }

    func apply(_ step: BlobStep) throws {
        switch step {
        case .place(let blob):
            unsure = expected.contains(blob) ? [] : [blob]
            try blobs.shards.prepare(Self.digests[blob].shard)
            let isNew = try Self.payloads[blob].withUnsafeBytes { try blobs.place($0, as: Self.digests[blob], hold()) }
            if isNew != !expected.contains(blob) { throw Disagreement("placing \(blob) gave \(isNew)") }
            // Relaxed stores write so, and sync nothing.
            if isDurable {
                try blobs.sync(Self.digests[blob])
            }
            expected.insert(blob)
        case .publish(let blob):
            unsure = [blob]
            try blobs.shards.prepare(Self.digests[blob].shard)
            try publish(blobs.staging.write(Self.payloads[blob], sync: isDurable), blob)
        case .pieces(let blob):
            unsure = [blob]
            try blobs.shards.prepare(Self.digests[blob].shard)
            let file = try blobs.staging.begin()
            do {
                let half = Self.payloads[blob].count / 2
                for piece in [Self.payloads[blob].prefix(half), Self.payloads[blob].suffix(from: half)] {
                    try piece.withUnsafeBytes { try file.append($0) }
                }
                if isDurable { try file.sync() }
                try publish(file.path, blob)
                file.release()
            } catch {
                file.discard()
                throw error
            }
        case .giveUp(let blob):
            unsure = []
            let file = try blobs.staging.begin()
            defer { file.discard() }
            try Self.payloads[blob].withUnsafeBytes { try file.append($0) }
        case .unlink(let gone):
            unsure = expected.intersection(gone)
            let hold = try hold()
            try blobs.unlink(tables().unnamed(gone.map { Self.digests[$0] }), hold)
            expected.subtract(gone)
        case .damage(let blob):
            guard expected.contains(blob) else { return }
            disk.corrupt(Self.digests[blob].path) { $0[0] ^= 1 }
            expected.remove(blob)
            unsure = []
            let hold = try hold()
            guard let damaged = try blobs.reader.damage(of: Self.digests[blob], size: Self.payloads[blob].count)
            else { throw Disagreement("\(blob) is not taken for damaged") }
            try blobs.setAside(damaged, hold)
        case .loseShard(let blob):
            let shard = Self.digests[blob].shard
            disk.remove("objects/" + Self.digests[blob].description.prefix(2))
            expected = expected.filter { Self.digests[$0].shard != shard }
        case .loseStaging: disk.remove("staging")
        }
        unsure = []
    }

    private func publish(_ staged: String, _ blob: Int) throws {
        do {
            try blobs.publish(staged, as: Self.digests[blob], hold()) {
                try blobs.staging.write(Self.payloads[blob], sync: isDurable)
            }
            if isDurable { try blobs.shards.sync(Self.digests[blob].shard) }
        } catch {
            blobs.staging.discard(staged)
            throw error
        }
        expected.insert(blob)
    }

    /// What is not as it should be.
    func difference() throws -> String? {
        for blob in Self.payloads.indices {
            let isThere = try blobs.reader.isIntact(Self.digests[blob], size: Self.payloads[blob].count)
            if unsure.contains(blob) { continue }
            if isThere != expected.contains(blob) {
                return "blob \(blob) is \(isThere ? "there" : "missing or damaged"), expected: \(expected.sorted())"
            }
        }
        return nil
    }

    /// Clears what a crash or a failure left, and says what is there afterwards that should not be.
    func leftovers() throws -> String? {
        clock.advance(seconds: 2 * 3600)
        try blobs.staging.sweep(now: clock.now)
        if !disk.names("staging").isEmpty { return "staging keeps \(disk.names("staging"))" }
        if disk.names("quarantine").count > 64 { return "\(disk.names("quarantine").count) files in quarantine" }
        let hold = try hold()
        let wanted = Set(expected.union(unsure).map { Self.digests[$0].path })
        for path in disk.files where path.hasPrefix("objects/") && !wanted.contains(path) {
            // The tables name none of them.
            guard let orphan = tables().orphan(at: path) else { return "\(path) is no orphan" }
            try blobs.remove(orphan, hold)
            if disk.kind(path) != nil { return "\(path) is left" }
        }
        return nil
    }

    struct Disagreement: Error, CustomStringConvertible {
        let description: String
        init(_ description: String) { self.description = description }
    }
}
