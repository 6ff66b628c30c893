import Foundation
import HTTPTypes
import TileStore
import TileStoreTesting

@testable import TileCache

/// A cache on a simulated disk, a server in memory, and a clock that stands still.
final class CacheLab: Sendable {
    let clock = TestClock()
    let transport = ScriptedTransport()
    let disk: SimulatedDisk
    let files: SimulatedFileSystem
    let store: TileStore
    let cache: TileCache
    let network = ScriptedNetwork()
    private let seen = Locked<[TileCacheEvent]>([])
    private let told = Locked<[TileCacheEvent]>([])

    init(recordsChanges: Bool = false, _ change: (inout TileCacheConfiguration) -> Void = { _ in }) throws {
        disk = SimulatedDisk(clock: clock.manual, recordsChanges: recordsChanges)
        files = SimulatedFileSystem(disk)
        var configuration = TileCacheConfiguration()
        let (seen, told) = (self.seen, self.told)
        configuration.onEvent = { event in
            told.withLock { $0.append(event) }
            if event.isTrouble { seen.withLock { $0.append(event) } }
        }
        configuration.network = network
        change(&configuration)
        store = try TileStore(environment: clock.manual.environment(files), configuration: configuration.store)
        cache = TileCache(
            store: store, transport: transport, configuration: configuration, clock: clock.cacheClock)
    }

    /// What went wrong.
    var events: [TileCacheEvent] { seen.withLock { $0 } }
    /// Everything that the cache told of.
    var log: [TileCacheEvent] { told.withLock { $0 } }

    /// A source of pictures.
    func source(
        _ name: String = "lab", _ template: String = "https://tiles.example/{z}/{x}/{y}.png",
        _ change: (inout TileSource) -> Void = { _ in }
    ) throws -> TileSource {
        var source = try TileSource(name, template: template)
        change(&source)
        return source
    }

    func key(_ x: Int = 1) throws -> TileKey { try TileKey(source: "lab", z: 12, x: x, y: 2) }

    /// Loads the lab's tile of a column.
    @discardableResult
    func load(
        _ x: Int = 1, _ mode: LoadMode = .standard, priority: FetchPriority = .visible, from source: TileSource? = nil
    ) async throws -> CachedTile? {
        try await cache.tile(source ?? self.source(), z: 12, x: x, y: 2, mode: mode, priority: priority)
    }

    /// Has the server send a tile once, so that it is in the cache.
    @discardableResult
    func prime(
        _ x: Int = 1, _ fields: HTTPFields = [.cacheControl: "max-age=60", .eTag: "\"a\""], body: Data? = nil
    ) async throws -> CachedTile? {
        transport.answer(.answer(200, fields, body: body))
        return try await load(x)
    }

    /// The error that a load ends with.
    func failure(
        _ x: Int = 1, _ mode: LoadMode = .standard, from source: TileSource? = nil
    ) async -> TileCacheError? {
        do {
            _ = try await load(x, mode, from: source)
            return nil
        } catch { return error as? TileCacheError }
    }

    /// Everything that is on the disk.
    func bytesOnDisk() -> [String: [UInt8]] {
        var found: [String: [UInt8]] = [:]
        func walk(_ folder: String) {
            for name in disk.names(folder) {
                let path = folder.isEmpty ? name : folder + "/" + name
                if disk.kind(path) == .folder { walk(path) } else { found[path] = disk.contents(path) ?? [] }
            }
        }
        walk("")
        return found
    }
}

extension TileOrigin {
    /// Fresh, from the cache alone: what was just put comes from disk the first time and from memory from then on.
    var isCached: Bool { self == .memory || self == .disk }
}
