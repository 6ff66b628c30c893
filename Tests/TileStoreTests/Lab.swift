import Foundation
import TileStore
import TileStoreTesting

/// A cache on a simulated disk, with one store open.
final class Lab {
    let clock = ManualClock()
    let disk: SimulatedDisk
    private(set) var files: SimulatedFileSystem
    private(set) var store: TileStore
    var configuration: StoreConfiguration
    private var seed: UInt64 = 10

    init(_ configuration: StoreConfiguration = Lab.plain, disk: SimulatedDisk? = nil) throws {
        self.disk = disk ?? SimulatedDisk(clock: clock)
        self.configuration = configuration
        files = SimulatedFileSystem(self.disk)
        store = try TileStore(environment: clock.environment(files), configuration: configuration)
    }

    deinit { kill() }

    /// No memory tier, and every read is checked.
    static var plain: StoreConfiguration {
        var configuration = StoreConfiguration()
        configuration.memoryTierBytes = 0
        configuration.digestCheck = .always
        return configuration
    }

    /// Another process's store on the same disk.
    func another(_ configuration: StoreConfiguration? = nil) throws -> TileStore {
        seed += 1
        return try TileStore(
            environment: clock.environment(SimulatedFileSystem(disk), seed: seed),
            configuration: configuration ?? self.configuration)
    }

    func kill() {
        store.simulateKill()
        files.kill()
    }

    func reopen(bootID: String = "boot-1") throws {
        kill()
        seed += 1
        files = SimulatedFileSystem(disk)
        store = try TileStore(
            environment: clock.environment(files, seed: seed, bootID: bootID), configuration: configuration)
    }

    func key(_ number: Int) -> TileKey {
        guard let key = try? TileKey(source: "lab", z: 12, x: number % 4096, y: number / 4096) else {
            fatalError("no key \(number)")
        }
        return key
    }

    func bytes(_ number: Int, size: Int = 1000) -> Data {
        var random = SplitMix64(seed: UInt64(number))
        return Data((0..<size).map { _ in UInt8(truncatingIfNeeded: random.next()) })
    }

    func digest(_ number: Int) -> BlobDigest { bytes(number).withUnsafeBytes { BlobDigest(hashing: $0) } }

    func metadata() -> TileMetadata { TileMetadata(storedAt: clock.now, expires: clock.now.adding(seconds: 3600)) }

    func put(_ numbers: Range<Int>) throws {
        for number in numbers { try store.put(bytes(number), for: key(number), metadata: metadata()) }
    }

    var journal: String {
        let numbers = disk.names("manifest").filter { $0.hasPrefix("journal-") }
            .compactMap { Int($0.dropFirst(8).prefix { $0.isNumber }) }
        return "manifest/journal-\(numbers.max() ?? 0).jsonl"
    }

    var checkpoint: String {
        let numbers = disk.names("manifest").filter { $0.hasPrefix("checkpoint-") }
            .compactMap { Int($0.dropFirst(11).prefix { $0.isNumber }) }
        return "manifest/checkpoint-\(numbers.max() ?? 0).json"
    }
}
