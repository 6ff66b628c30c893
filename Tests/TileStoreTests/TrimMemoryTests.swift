import Foundation
import Testing

@testable import TileStore

/// What is given up when memory is short.
@Suite struct TrimMemoryTests {
    @Test func whatWasInMemoryIsReadFromTheDiskAgain() throws {
        var configuration = Lab.plain
        configuration.memoryTierBytes = 4 << 20
        let lab = try Lab(configuration)
        try lab.put(0..<200)
        for number in 0..<200 { _ = try lab.store.read(lab.key(number)) }
        #expect(try lab.store.read(lab.key(7))?.origin == .memory)
        #expect(lab.store.memory.bytes >= 200 * 1000)
        lab.store.trimMemory()
        #expect(lab.store.memory.bytes == 0)
        for number in 0..<200 {
            let tile = try lab.store.read(lab.key(number))
            #expect(tile?.data == lab.bytes(number) && tile?.origin == .disk)
        }
        // It fills again, within its bound.
        #expect(try lab.store.read(lab.key(7))?.origin == .memory)
        #expect(lab.store.memory.bytes >= 200 * 1000)
    }

    @Test func aTierKeepsItsBoundWhateverIsGivenUpMeanwhile() {
        let tier = MemoryTier(bytes: 100_000)
        for round in 0..<5 {
            for number in 0..<500 {
                let data = Data(repeating: UInt8(truncatingIfNeeded: number), count: 100 + number)
                let digest = data.withUnsafeBytes { BlobDigest(hashing: $0) }
                tier.insert(data, for: digest)
                #expect(tier.data(for: digest) == data)
                #expect(tier.bytes <= 100_000)
                if number == 100 * round { tier.removeAll() }
            }
        }
        tier.removeAll()
        #expect(tier.bytes == 0)
    }
}
