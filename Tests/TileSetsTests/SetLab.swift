import Foundation
import Testing
import TileSets
import TileStore
import TileStoreTesting

/// A cache that is published, the folder of the set, and a cache that pulls, all on simulated disks.
final class SetLab {
    let clock = ManualClock()
    let folderDisk: SimulatedDisk
    let source: SourceName
    let origin: TileStore
    let pullerDisk: SimulatedDisk
    /// What the published cache has, by the tile's text.
    private(set) var model: [String: Data] = [:]
    var random: SplitMix64
    private(set) var puller: TileStore
    private(set) var pullerFiles: SimulatedFileSystem

    init(seed: UInt64, recordsChanges: Bool = false) throws {
        random = SplitMix64(seed: seed)
        source = try SourceName("map")
        origin = try Self.store(SimulatedFileSystem(SimulatedDisk(clock: clock)), clock)
        folderDisk = SimulatedDisk(clock: clock, recordsChanges: recordsChanges)
        pullerDisk = SimulatedDisk(clock: clock)
        pullerFiles = SimulatedFileSystem(pullerDisk)
        puller = try Self.store(pullerFiles, clock)
    }

    static func store(_ files: SimulatedFileSystem, _ clock: ManualClock) throws -> TileStore {
        var configuration = StoreConfiguration()
        configuration.createIfMissing = true
        configuration.memoryTierBytes = 0
        return try TileStore(environment: clock.environment(files), configuration: configuration)
    }

    /// The pulling process dies, and another one opens the cache.
    func restartPuller() throws {
        pullerFiles.kill()
        puller.simulateKill()
        pullerFiles = SimulatedFileSystem(pullerDisk)
        puller = try Self.store(pullerFiles, clock)
    }

    func files() -> SimulatedFileSystem { SimulatedFileSystem(folderDisk, location: "/set") }

    /// Some tiles come, some change, some go.
    func change(_ count: Int) throws {
        for _ in 0..<count {
            let z = random.below(5)
            let tile = try TileAddress(
                z: z, x: random.below(1 << z), y: random.below(1 << z), scale: random.oneIn(6) ? 2 : 1,
                format: random.oneIn(5) ? "png" : nil)
            let key = TileKey(source: source, tile: tile)
            let text = SetKey(tile).text
            if random.oneIn(4) {
                _ = try origin.remove([key])
                model[text] = nil
            } else {
                // Few different contents, so that tiles share blobs; and kinds of all sorts.
                let data = Data("tile \(random.below(12))".utf8) + Data(count: random.below(3) * 50)
                try put(data, tile)
            }
        }
    }

    func put(_ data: Data, _ tile: TileAddress) throws {
        let type = ["image/png", "IMAGE/PNG; q=1", nil, "text/x-unheard-of"][Int(data.count % 4)]
        let metadata = TileMetadata(
            response: ResponseFields(mediaType: type, contentEncoding: data.count % 3 == 0 ? "gzip" : nil),
            etag: "\"\(data.count)\"", storedAt: clock.now, expires: clock.now.adding(seconds: 60))
        try origin.put(data, for: TileKey(source: source, tile: tile), metadata: metadata)
        model[SetKey(tile).text] = data
    }

    func publisher() -> SetPublisher {
        var publisher = SetPublisher(
            CacheTiles(origin, folder: "/cache", source: source), source: source, now: clock.now)
        publisher.copier = nil
        return publisher
    }

    @discardableResult
    func publish(_ files: SimulatedFileSystem? = nil) throws -> PublishReport {
        clock.advance(seconds: 1)
        return try publisher().publish(into: files ?? self.files())
    }

    @discardableResult
    func pull(_ fetcher: CountingFetcher, concurrency: Int = 3) async throws -> PullReport {
        var puller = SetPuller(store: puller, source: source, from: fetcher, now: clock.now)
        puller.concurrency = concurrency
        return try await puller.pull()
    }

    /// Whether blobs that only a pull needs may be left.
    var toleratesParts = false

    /// What a cache has of the source, by the tile's text.
    func contents(of store: TileStore) throws -> [String: Data] {
        var contents: [String: Data] = [:]
        var keys: [TileKey] = []
        try store.forEachEntry { keys.append($0.key) }
        for key in keys {
            guard let tile = key.tile else {
                #expect(key.description == "map:pull/state" || toleratesParts, "\(key) is left")
                continue
            }
            contents[SetKey(tile).text] = try store.read(key)?.data
        }
        return contents
    }

    /// Whether what was pulled is what is published, pinned and sound.
    func expectPulled(_ model: [String: Data]? = nil) throws {
        #expect(try contents(of: puller) == model ?? self.model)
        try puller.forEachEntry {
            if !toleratesParts || $0.key.tile != nil { #expect($0.isPinned, "\($0.key) is not pinned") }
        }
        #expect(try puller.verify().ok)
    }
}

/// Fetches from a folder, counts, and fails where it is told to.
final class CountingFetcher: SetFetcher {
    private let folder: FolderSetFetcher
    private let state = Locked((paths: [String: Int](), left: Int.max))
    /// Called with each path: bytes in the place of the file's, or `nil`.
    let answer: @Sendable (String) -> [UInt8]??

    var place: String { folder.place }
    var counts: [String: Int] { state.withLock { $0.paths } }

    init(_ files: any FileSystem, answer: @escaping @Sendable (String) -> [UInt8]?? = { _ in .none }) {
        folder = FolderSetFetcher(files)
        self.answer = answer
    }

    /// Lets so many fetches through.
    func allow(_ count: Int) { state.withLock { $0.left = count } }

    func fetch(_ path: String, limit: Int) async throws -> [UInt8]? {
        let mayPass = state.withLock { state in
            state.left -= 1
            if state.left >= 0 { state.paths[path, default: 0] += 1 }
            return state.left >= 0
        }
        guard mayPass else { throw SetError(.unreachable, "the line is dead") }
        if let other = answer(path) {
            if let other, other.count > limit { throw SetError(.damaged, "\(path) is longer than it may be") }
            return other
        }
        return try await folder.fetch(path, limit: limit)
    }
}
