import Foundation
import Testing
import TileStoreTesting

/// The inputs that fuzzing starts from, and what becomes of them when they are damaged, without a build for fuzzing.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct ReplayTests {
    private static let corpus = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent("FuzzCorpus")

    private static func inputs(of target: FuzzTarget) throws -> [(name: String, bytes: [UInt8])] {
        let folder = corpus.appendingPathComponent(target.name)
        return try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted().map {
            ($0, [UInt8](try Data(contentsOf: folder.appendingPathComponent($0))))
        }
    }

    @Test("Every target keeps its promises for the inputs that fuzzing starts from", arguments: FuzzTarget.all)
    func asTheyAre(target: FuzzTarget) throws {
        let inputs = try Self.inputs(of: target)
        #expect(!inputs.isEmpty)
        for (name, bytes) in inputs {
            #expect(throws: Never.self, "\(target.name)/\(name)") { try target.body(bytes) }
        }
    }

    @Test("Every target keeps its promises for damaged and combined inputs", arguments: FuzzTarget.all)
    func damaged(target: FuzzTarget) throws {
        let inputs = try Self.inputs(of: target).map(\.bytes)
        for seed in 0..<400 as Range<UInt64> {
            var random = SplitMix64(seed: seed)
            let input = Self.damaged(inputs, using: &random)
            do { try target.body(input) } catch {
                let text = Data(input).base64EncodedString()
                Issue.record("\(target.name), seed \(seed): \(error); the input in base64: \(text.prefix(4000))")
                return
            }
        }
    }

    /// One of the inputs, or parts of two, with some bytes changed, taken away, repeated or put in.
    private static func damaged(_ inputs: [[UInt8]], using random: inout SplitMix64) -> [UInt8] {
        var input = inputs.randomElement(using: &random) ?? []
        if Int.random(in: 0..<4, using: &random) == 0, let other = inputs.randomElement(using: &random) {
            input =
                input.prefix(Int.random(in: 0...input.count, using: &random))
                + other.suffix(Int.random(in: 0...other.count, using: &random))
        }
        for _ in 0..<Int.random(in: 1...8, using: &random) {
            let place = Int.random(in: 0...input.count, using: &random)
            let end = min(input.count, place + Int.random(in: 1...16, using: &random))
            switch Int.random(in: 0..<6, using: &random) {
            case 0 where place < input.count: input[place] ^= 1 << UInt8.random(in: 0..<8, using: &random)
            case 1 where place < input.count:
                input[place] = [0, 0x7F, 0x80, 0xFF, 0x22, 0x2C].randomElement(using: &random) ?? 0
            case 2: input.removeSubrange(place..<end)
            case 3: input.insert(contentsOf: input[place..<end], at: place)
            case 4: input.insert(UInt8.random(in: .min ... .max, using: &random), at: place)
            default: input.removeLast(Int.random(in: 0...min(input.count, 4), using: &random))
            }
        }
        return input
    }
}
