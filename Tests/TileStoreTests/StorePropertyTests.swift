import Foundation
import Testing
import TileStore
import TileStoreTesting

/// Seeded scripts on the store and on a model of dictionaries.
///
/// `TILE_SEED=…` replays one seed, `TILE_SEEDS=n` runs n.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct StorePropertyTests {
    static let parts = 20

    @Test("The store does what the model does", arguments: 0..<parts)
    func storeAgreesWithModel(part: Int) throws {
        for seed in Seeds.share(part, of: Self.parts, count: 2000) {
            try run(seed: seed)
        }
    }

    private func run(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let setting = ScriptSetting(
            memoryTier: seed % 4 == 1, durable: seed % 5 == 2, images: seed % 6 == 1, mixed: seed % 7 == 3)
        let script = Step.script(count: 200, setting: setting, using: &random)
        // Every 50th runs on the real disk.
        let real = seed % 50 == 7
        func failure(_ script: [Step]) throws -> String? {
            guard real else { return replay(script, setting: setting) }
            let folder = NSTemporaryDirectory() + "tile-store-\(UUID().uuidString)"
            defer { try? FileManager.default.removeItem(atPath: folder) }
            return replay(script, setting: setting, folder: folder)
        }
        guard let first = try failure(script) else { return }
        let smallest = try shrink(script) { try failure($0) != nil }
        Issue.record(
            """
            seed \(seed)\(real ? " on the real disk" : ""): \(try failure(smallest) ?? "flaky, first: \(first)")
            \(source(of: smallest, setting: setting))
            """)
    }
}
