import Foundation
import HTTPTypes
import TileStore
import TileStoreTesting

@testable import TileCache
@testable import TileCacheMapKit

/// Bytes that pass for a picture, told apart by their name; the width and height follow the signature.
func picture(_ name: String, width: UInt32 = 256, height: UInt32 = 256) -> Data {
    var data = Data([0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A])
    for number in [width, height] { withUnsafeBytes(of: number.bigEndian) { data.append(contentsOf: $0) } }
    data.append(Data(name.utf8))
    return data
}

/// A tile that is known to exist.
func tile(_ z: Int, _ x: Int, _ y: Int, scale: Int = 1) throws -> TileAddress {
    try TileAddress(z: z, x: x, y: y, scale: scale)
}

/// Gives way to other tasks until something holds; bounded by the suite's time limit.
func until(isolation: isolated (any Actor)? = #isolation, _ holds: () throws -> Bool) async rethrows {
    while try !holds() { await Task.yield() }
}

/// A server in memory that answers by a closure and remembers what it was asked.
final class ScriptedServer: TileTransport {
    typealias Script = @Sendable (HTTPRequest) async throws -> TransportResponse
    private let state: Locked<(script: Script, requests: [HTTPRequest])>

    init(_ script: @escaping Script = { .tile(picture($0.path ?? "")) }) { state = Locked((script, [])) }

    var requests: [HTTPRequest] { state.withLock { $0.requests } }
    func count(of path: String) -> Int { requests.count { $0.path == path } }
    func script(_ script: @escaping Script) { state.withLock { $0.script = script } }

    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        let script = state.withLock { state in
            state.requests.append(request.head)
            return state.script
        }
        do { return try await script(request.head) } catch let error as TransportError { throw error } catch {
            throw TransportError(.cancelled, "the request was cancelled")
        }
    }
}

extension TransportResponse {
    static func tile(_ body: Data, _ fields: HTTPFields = [.cacheControl: "max-age=600"]) -> TransportResponse {
        TransportResponse(head: HTTPResponse(status: .ok, headerFields: fields), body: body)
    }
    static func status(_ code: Int, _ fields: HTTPFields = [:]) -> TransportResponse {
        TransportResponse(head: HTTPResponse(status: .init(code: code), headerFields: fields), body: Data())
    }
}

/// A clock that stands still until the test moves it; who sleeps wakes when its time has come.
final class StoppedClock: Sendable {
    private let sleepers = Locked<[(until: UInt64, continuation: CheckedContinuation<Void, any Error>)]>([])
    private let random = Locked(SplitMix64(seed: 1))
    let manual = ManualClock()

    var cacheClock: CacheClock {
        CacheClock(
            now: { self.manual.now }, ticks: { self.manual.ticks },
            sleep: { duration in
                let (seconds, rest) = duration.components
                let until = self.manual.ticks + UInt64(seconds) * 1_000_000_000 + UInt64(rest / 1_000_000_000)
                try await withCheckedThrowingContinuation { continuation in
                    self.sleepers.withLock { $0.append((until, continuation)) }
                }
            }, random: { self.random.withLock { $0.next() } })
    }

    var sleeping: Int { sleepers.withLock { $0.count } }

    func advance(seconds: Int64) {
        manual.advance(seconds: seconds)
        let now = manual.ticks
        let due = sleepers.withLock { sleepers in
            let due = sleepers.filter { $0.until <= now }
            sleepers.removeAll { $0.until <= now }
            return due
        }
        for sleeper in due { sleeper.continuation.resume() }
    }
}

/// A map over a cache on a simulated disk, a server in memory and a clock that stands still.
final class MapLab: Sendable {
    let clock = StoppedClock()
    let server = ScriptedServer()
    let cache: TileCache
    let map: MapCache

    init(_ change: (inout MapCacheConfiguration) -> Void = { _ in }) throws {
        let files = SimulatedFileSystem(SimulatedDisk(clock: clock.manual))
        let store = try TileStore(environment: clock.manual.environment(files), configuration: StoreConfiguration())
        cache = TileCache(
            store: store, transport: server, configuration: TileCacheConfiguration(), clock: clock.cacheClock)
        var configuration = MapCacheConfiguration(urlTemplate: "https://tiles.example/{z}/{x}/{y}.png")
        configuration.sourceName = "lab"
        change(&configuration)
        map = try MapCache(configuration, cache: cache)
    }

    /// Another map in the same cache.
    func other(_ change: (inout MapCacheConfiguration) -> Void) throws -> MapCache {
        var configuration = map.configuration
        change(&configuration)
        return try MapCache(configuration, cache: cache)
    }

    /// Puts a tile into the cache, fresh for so many seconds.
    func put(_ tile: TileAddress, _ name: String? = nil, fresh: Int64 = 600) throws {
        let now = clock.manual.now
        let key = try map.source.key(z: tile.z, x: tile.x, y: tile.y, scale: tile.scale)
        _ = try cache.store.put(
            picture(name ?? "\(tile.z)/\(tile.x)/\(tile.y)"), for: key,
            metadata: TileMetadata(storedAt: now, expires: now.adding(seconds: fresh)))
    }
}
