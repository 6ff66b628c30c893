import Foundation
import Testing
import TileArchive
import TileStore
import TileStoreTesting

/// Files of a folder that cannot be read now.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct UnreadableFileTests {
    private let scratch: Scratch
    private let held: HeldFile

    init() throws {
        scratch = try Scratch()
        for y in 0..<3 { try scratch.write(Pyramid.magic + Data([UInt8(y)]), to: "in/2/1/\(y).png") }
        held = try HeldFile(scratch("in/2/1/1.png"))
    }

    @Test func aFileThatCouldNotBeReadWasPassedOver() throws {
        let store = try TileStore(at: scratch("cache"))
        let notes = Notes()
        let report = try store.take(scratch("in"), notes)
        #expect(report.tiles == 2 && report.failed == 1 && report.skipped == 0)
        #expect(notes.skips.isEmpty && notes.failures.count == 1)
        #expect(notes.failures.first?.contains("2/1/1.png: ") == true)
        held.release()
        #expect(try store.take(scratch("in")).tiles == 3)
    }

    @Test func aLookUpTookAFileThatCannotBeReadForAbsent() throws {
        let reader = try ArchiveFormat.folder.open(scratch("in"))
        #expect(try reader.tile(z: 2, x: 1, y: 0) != nil)
        #expect(message { _ = try reader.tile(z: 2, x: 1, y: 1) }.contains("2/1/1.png"))
        held.release()
        #expect(try reader.tile(z: 2, x: 1, y: 1) != nil)
    }

    /// It counted as empty, and the next archive's words were all that was left.
    @Test func aDescriptionThatCouldNotBeReadWasReplaced() throws {
        _ = try TileStore(at: scratch("cache"))
        let description = SourceDescription(cache: scratch("cache"), source: try SourceName("s"))
        var first = ArchiveMetadata()
        first.attribution = "first"
        try description.merge(first)
        let held = try HeldFile(scratch("cache/sources/s.json"))
        var second = ArchiveMetadata()
        second.attribution = "second"
        #expect(throws: ArchiveError.self) { try description.merge(second) }
        held.release()
        #expect(try description.read().attribution == "first")
    }
}
