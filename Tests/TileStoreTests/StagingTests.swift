import Foundation
import Testing
import TileStore
import TileStoreTesting

/// Files in `staging/`: a clock that jumps takes none from a writer, and those of the dead go.
@Suite(.timeLimit(.minutes(30)), .ownThreads)
struct StagingTests {
    /// A tile whose bytes are staged.
    private static func stage(_ number: Int, size: Int, in lab: Lab) throws -> PutInSteps {
        let tile = TilePut(
            key: lab.key(number), data: lab.bytes(number, size: size), metadata: lab.metadata())
        let batch = try PutInSteps([tile], into: lab.store)
        _ = try batch.stage(known: [])
        #expect(lab.disk.names("staging").count == 1)
        return batch
    }

    private static func lab(durable: Bool) throws -> Lab {
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        return try Lab(configuration)
    }

    /// A put failed whose staged file another opening had taken for a leftover, as a clock had jumped.
    @Test(arguments: [(false, 200_000), (true, 1000)])
    func aStagedPutWhoseFileWasSweptIsStagedAgain(durable: Bool, size: Int) throws {
        let lab = try Self.lab(durable: durable)
        let batch = try Self.stage(1, size: size, in: lab)
        lab.clock.advance(seconds: 5 * 3600)
        let other = try lab.another()
        #expect(lab.disk.names("staging") == [])
        #expect(try batch.record().stored == 1)
        #expect(try lab.store.read(lab.key(1))?.data == lab.bytes(1, size: size))
        #expect(try lab.store.invariantViolations() == [])
        #expect(lab.disk.names("staging") == [])
        other.simulateKill()
    }

    /// A put whose bytes had been staged failed where the folder was removed and made anew meanwhile.
    @Test(arguments: [(false, 200_000), (true, 1000)])
    func aStagedPutGoesIntoTheFolderThatHasTakenThePlace(durable: Bool, size: Int) throws {
        let lab = try Self.lab(durable: durable)
        let batch = try Self.stage(1, size: size, in: lab)
        lab.disk.remove("")
        let other = try lab.another()
        #expect(try batch.record().stored == 1)
        lab.clock.advance(seconds: 10)
        #expect(try other.read(lab.key(1))?.data == lab.bytes(1, size: size))
        #expect(try other.invariantViolations() == [])
        other.simulateKill()
    }
}
