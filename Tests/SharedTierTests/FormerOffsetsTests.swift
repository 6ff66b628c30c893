import Testing
import TileStore
import TileStoreTesting

@testable import SharedTier

@Suite(.timeLimit(.minutes(60)))
struct FormerOffsetsTests {
    private struct Note {
        var offset: Int64
        var until: Int64
    }

    private func least(_ notes: [Note], at time: Int64) -> Int64? {
        notes.filter { $0.until >= time }.map(\.offset).min()
    }

    @Test(arguments: Seeds.list(20))
    func itAgreesWithAListOfAllThatWasNoted(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        for _ in 0..<100 {
            var (former, notes) = (FormerOffsets(), [Note]())
            for _ in 0..<FormerOffsets.most {
                let note = Note(
                    offset: .random(in: -20...20, using: &random), until: .random(in: 1...60, using: &random))
                notes.append(note)
                former.note(ClockOffset(seconds: note.offset), until: Timestamp(seconds: note.until))
                for time in Int64(0)...61 {
                    #expect(former.least(at: Timestamp(seconds: time))?.seconds == least(notes, at: time))
                }
            }
        }
    }

    /// More than there is room for: tiles may seem older than they are, never newer.
    @Test(arguments: Seeds.list(20))
    func joiningMakesNothingNewer(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        var (former, notes) = (FormerOffsets(), [Note]())
        for step in Int64(1)...300 {
            let note = Note(offset: step * 3 + .random(in: 0...2, using: &random), until: step * 10)
            notes.append(note)
            former.note(ClockOffset(seconds: note.offset), until: Timestamp(seconds: note.until))
            #expect(former.periods.count <= FormerOffsets.most)
        }
        for time in Int64(0)...3010 {
            let (said, right) = (former.least(at: Timestamp(seconds: time))?.seconds, least(notes, at: time))
            #expect((said == nil) == (right == nil) && said ?? 0 <= right ?? 0)
        }
    }
}
