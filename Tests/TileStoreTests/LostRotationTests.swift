import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

/// Damage to the lines that lead from one file of the manifest to the next, and to what comes behind very long ones.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct LostRotationTests {
    enum Harm: CaseIterable { case bit, torn, gone, zeros }

    /// A compaction that is given up leaves a journal that ends in a rotate record, and the one that it leads to.
    private func rotated(durable: Bool) throws -> (lab: Lab, rotating: String, state: StoreSnapshot) {
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        let lab = try Lab(configuration)
        try lab.put(0..<6)
        let rotating = lab.journal
        try #require(try lab.store.beginCompaction()).abandon()
        #expect(lab.journal != rotating)
        try lab.put(6..<9)
        _ = try lab.store.remove((0..<2).map(lab.key))
        let state = try lab.store.snapshot()
        lab.kill()
        for name in lab.disk.names("manifest") where name.hasPrefix("index-") { lab.disk.remove("manifest/" + name) }
        return (lab, rotating, state)
    }

    private func harm(_ bytes: inout [UInt8], _ how: Harm) {
        let start = (bytes.dropLast().lastIndex(of: 0x0A) ?? -1) + 1
        switch how {
        case .bit: bytes[start + 3] ^= 4
        case .torn: bytes.removeLast(bytes.count - start - 7)
        case .gone: bytes.removeLast(bytes.count - start)
        case .zeros: for place in start..<bytes.count { bytes[place] = 0 }
        }
    }

    @Test(arguments: Harm.allCases, [false, true])
    func aDamagedRotateRecordLostTheWholeNextJournal(how: Harm, durable: Bool) throws {
        let (lab, rotating, state) = try rotated(durable: durable)
        lab.disk.corrupt(rotating) { harm(&$0, how) }
        let reader = try lab.another(Self.readOnly)
        #expect(try reader.snapshot() == state)
        #expect(try reader.verify().journalDamage == 1)
        reader.simulateKill()
        try lab.reopen()
        #expect(try lab.store.snapshot() == state)
        let report = try lab.store.verify()
        #expect(report.journalDamage == 1 && !report.ok && report.orphans.isEmpty)
        // Both go on in the journal that was found.
        try lab.put(9..<11)
        let other = try lab.another()
        #expect(try other.snapshot() == lab.store.snapshot())
        other.simulateKill()
        _ = try lab.store.verify(repair: true)
        let mended = try lab.store.verify()
        #expect(mended.ok && mended.orphans.isEmpty)
        try lab.reopen()
        #expect(try lab.store.snapshot().entries.count == 9)
        #expect(try lab.store.invariantViolations() == [])
    }

    /// One that was in the journal before follows too.
    @Test(arguments: [Harm.bit, .torn, .zeros])
    func oneWhoIsBehindFollowsPastADamagedRotateRecord(how: Harm) throws {
        let lab = try Lab()
        try lab.put(0..<6)
        let rotating = lab.journal
        let (other, reader) = (try lab.another(), try lab.another(Self.readOnly))
        try #require(try lab.store.beginCompaction()).abandon()
        try lab.put(6..<9)
        let state = try lab.store.snapshot()
        lab.disk.corrupt(rotating) { harm(&$0, how) }
        try reader.catchUp()
        #expect(try reader.snapshot() == state)
        try other.put(lab.bytes(9), for: lab.key(9), metadata: lab.metadata())
        try lab.store.catchUp()
        #expect(try lab.store.snapshot() == other.snapshot())
        #expect(try lab.store.snapshot().entries.count == 10)
        reader.simulateKill()
        other.simulateKill()
    }

    /// A journal with nothing but its header was begun by a rotation that was broken off.
    @Test(arguments: Harm.allCases)
    func aJournalWithItsHeaderAloneStillMeansNothing(how: Harm) throws {
        let lab = try Lab()
        try lab.put(0..<6)
        let rotating = lab.journal
        try #require(try lab.store.beginCompaction()).abandon()
        let state = try lab.store.snapshot()
        lab.kill()
        for name in lab.disk.names("manifest") where name.hasPrefix("index-") { lab.disk.remove("manifest/" + name) }
        lab.disk.corrupt(rotating) { harm(&$0, how) }
        try lab.reopen()
        #expect(try lab.store.snapshot() == state)
        try lab.put(6..<8)
        #expect(lab.disk.contents(rotating)?.count ?? 0 > 0)
        try lab.reopen()
        #expect(try lab.store.snapshot().entries.count == 8)
        #expect(try lab.store.verify().ok)
    }

    /// How the last two lines of a journal, the rotate record among them, are harmed.
    enum LargerHarm: CaseIterable { case bits, zeros, gone, header }

    private func harmMore(_ lab: Lab, _ journal: String, next: String, _ how: LargerHarm) {
        lab.disk.corrupt(journal) { bytes in
            let last = (bytes.dropLast().lastIndex(of: 0x0A) ?? -1) + 1
            let before = (bytes[..<(last - 1)].lastIndex(of: 0x0A) ?? -1) + 1
            switch how {
            case .bits, .header:
                bytes[last + 3] ^= 4
                bytes[before + 3] ^= 4
            case .zeros: for place in before..<bytes.count { bytes[place] = 0 }
            case .gone: bytes.removeLast(bytes.count - before)
            }
        }
        if how == .header { lab.disk.corrupt(next) { $0[3] ^= 4 } }
    }

    /// Three journals behind one checkpoint: keys 0 to 5, 6 to 8 without 0 and 1, 9 and 10.
    private func chain(durable: Bool = false) throws -> (lab: Lab, journals: [String]) {
        var configuration = Lab.plain
        configuration.durability = durable ? .durable : .relaxed
        let lab = try Lab(configuration)
        var journals = [lab.journal]
        try lab.put(0..<6)
        try #require(try lab.store.beginCompaction()).abandon()
        journals.append(lab.journal)
        _ = try lab.store.remove((0..<2).map(lab.key))
        try lab.put(6..<9)
        try #require(try lab.store.beginCompaction()).abandon()
        journals.append(lab.journal)
        try lab.put(9..<11)
        return (lab, journals)
    }

    private func forgetImages(_ lab: Lab) {
        for name in lab.disk.names("manifest") where name.hasPrefix("index-") { lab.disk.remove("manifest/" + name) }
    }

    private func numbers(_ lab: Lab, _ store: TileStore) throws -> [Int] {
        try (0..<20).filter { try store.read(lab.key($0))?.data == lab.bytes($0) }
    }

    /// The rotate record and the line before it: all journals behind them were passed over and later deleted, and `verify` called
    /// that sound.
    @Test(arguments: LargerHarm.allCases, [0, 1])
    func twoDamagedLinesAtAJournalsEndLostTheJournalsBehindIt(how: LargerHarm, which: Int) throws {
        for durable in [false, true] {
            let (lab, journals) = try chain(durable: durable)
            lab.kill()
            forgetImages(lab)
            harmMore(lab, journals[which], next: journals[which + 1], how)
            // Of key 5, or of key 8, the line is lost.
            let left = [2, 3, 4, 5, 6, 7, 8, 9, 10].filter { $0 != (which == 0 ? 5 : 8) }
            let reader = try lab.another(Self.readOnly)
            #expect(try numbers(lab, reader) == left)
            #expect(try reader.verify().journalDamage > 0)
            reader.simulateKill()
            try lab.reopen()
            #expect(try numbers(lab, lab.store) == left)
            let report = try lab.store.verify()
            #expect(!report.ok && report.journalDamage > (how == .bits ? 1 : 0) && report.orphans.count == 1)
            try lab.put(11..<12)
            let other = try lab.another()
            #expect(try other.snapshot() == lab.store.snapshot())
            other.simulateKill()
            _ = try lab.store.verify(repair: true)
            #expect(try lab.store.verify().ok)
            try lab.reopen()
            #expect(try numbers(lab, lab.store) == left + [11])
            #expect(try lab.store.invariantViolations() == [])
        }
    }

    /// One that had read the record before it was damaged went on in another journal than those that came later.
    @Test(arguments: LargerHarm.allCases)
    func aProcessThatLivesWentOnInAnotherJournal(how: LargerHarm) throws {
        let (lab, journals) = try chain()
        forgetImages(lab)
        harmMore(lab, journals[1], next: journals[2], how)
        let other = try lab.another()
        try other.put(lab.bytes(12), for: lab.key(12), metadata: lab.metadata())
        try lab.put(13..<14)
        try other.catchUp()
        #expect(try numbers(lab, lab.store) == [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13])
        #expect(try numbers(lab, other) == [2, 3, 4, 5, 6, 7, 9, 10, 12, 13])
        // What one of them knows and the other does not stands in the next checkpoint.
        _ = try lab.store.compact()
        try other.catchUp()
        #expect(try other.snapshot() == lab.store.snapshot())
        #expect(try lab.another().verify().ok)
        other.simulateKill()
    }

    /// It was made again with its header alone, and the one behind it was passed over.
    @Test(arguments: [0, 1])
    func aMissingJournalLostThoseBehindIt(which: Int) throws {
        let (lab, journals) = try chain()
        lab.kill()
        forgetImages(lab)
        lab.disk.remove(journals[which])
        try lab.reopen()
        #expect(try numbers(lab, lab.store) == (which == 0 ? [6, 7, 8, 9, 10] : [2, 3, 4, 5, 9, 10]))
        #expect(try lab.store.verify().journalDamage > 0)
    }

    /// One that is behind makes the missing journal again, and finds that others have gone on.
    @Test func oneWhoIsBehindMadeAMissingJournalAndStayedInIt() throws {
        let lab = try Lab()
        try lab.put(0..<6)
        let behind = try lab.another()
        try #require(try lab.store.beginCompaction()).abandon()
        let middle = lab.journal
        try lab.put(6..<9)
        try #require(try lab.store.beginCompaction()).abandon()
        try lab.put(9..<11)
        lab.kill()
        forgetImages(lab)
        lab.disk.remove(middle)
        try behind.put(lab.bytes(12), for: lab.key(12), metadata: lab.metadata())
        try lab.reopen()
        for store in [behind, lab.store] { #expect(try numbers(lab, store) == [0, 1, 2, 3, 4, 5, 9, 10, 12]) }
        behind.simulateKill()
    }

    /// Lines behind the place from which the next journal goes on are newer than what is in that: it is not read after them.
    @Test func aJournalThatGoesOnFromElsewhereIsNotFollowed() throws {
        let (lab, rotating, _) = try rotated(durable: false)
        lab.disk.corrupt(rotating) { bytes in
            let record = (bytes.dropLast().lastIndex(of: 0x0A) ?? -1) + 1
            let line = (bytes[..<(record - 1)].lastIndex(of: 0x0A) ?? -1) + 1
            bytes = Array(bytes[..<record] + bytes[line..<record])
        }
        try lab.reopen()
        // The blobs of 0 and 1 are gone.
        #expect(try numbers(lab, lab.store) == [2, 3, 4, 5])
        try lab.put(10..<12)
        try lab.reopen()
        #expect(try numbers(lab, lab.store) == [2, 3, 4, 5, 10, 11])
    }

    @Test func aCompactionAfterDamageLeftTheOldGeneration() throws {
        for repairs in [false, true] {
            let lab = try Lab()
            try lab.put(0..<4)
            _ = try lab.store.compact()
            try lab.put(4..<9)
            lab.kill()
            lab.disk.corrupt(lab.journal) { bytes in bytes[bytes.count / 2] ^= 1 }
            for name in lab.disk.names("manifest") where name.hasPrefix("index-") {
                lab.disk.remove("manifest/" + name)
            }
            try lab.reopen()
            if repairs { _ = try lab.store.verify(repair: true) } else { _ = try lab.store.compact() }
            let names = lab.disk.names("manifest")
            #expect(names.filter { $0.hasPrefix("checkpoint-") }.count == 1, "\(names)")
            #expect(names.filter { $0.hasPrefix("journal-") }.count == 1, "\(names)")
            #expect(try lab.store.verify().journalDamage == 0 || !repairs)
        }
    }

    /// A line that is longer than any of the store's is one damaged line.
    @Test func aLineLongerThanAnyHidThoseBehindIt() throws {
        let lab = try Lab()
        try lab.put(0..<6)
        _ = try lab.store.compact()
        try lab.put(6..<9)
        let state = try lab.store.snapshot()
        lab.kill()
        for name in lab.disk.names("manifest") where name.hasPrefix("index-") { lab.disk.remove("manifest/" + name) }
        let long = [UInt8](repeating: 0x79, count: 70_000_000) + [0x0A]
        for path in [lab.checkpoint, lab.journal] {
            lab.disk.corrupt(path) { bytes in
                // Behind the second line.
                let first = bytes.firstIndex(of: 0x0A) ?? 0
                let second = bytes[(first + 1)...].firstIndex(of: 0x0A) ?? first
                bytes.insert(contentsOf: long, at: second + 1)
            }
        }
        try lab.reopen()
        #expect(try lab.store.snapshot() == state)
        #expect(try lab.store.verify().journalDamage == 2)
        _ = try lab.store.verify(repair: true)
        #expect(try lab.store.verify().ok)
        #expect(try lab.store.snapshot() == state)
    }

    /// A megabyte was read anew behind each damaged line, twice.
    @Test func manyDamagedLinesCostAMegabyteEach() throws {
        let lab = try Lab()
        try lab.put(0..<400)
        let state = try lab.store.snapshot()
        lab.kill()
        for name in lab.disk.names("manifest") where name.hasPrefix("index-") { lab.disk.remove("manifest/" + name) }
        let bad = Array("{\"damaged\":1,\"c\":\"00000000\"}\n".utf8)
        lab.disk.corrupt(lab.journal) { bytes in
            bytes = Array(bytes.split(separator: 0x0A).joined(separator: [0x0A] + bad)) + [0x0A]
            // Right lines that are the last ones' equals: enough for long reads.
            let tail = bytes.suffix(1 << 12).drop { $0 != 0x0A }.dropFirst()
            while bytes.count < 3 << 20 { bytes += bad + tail }
        }
        let length = try #require(lab.disk.contents(lab.journal)?.count)
        let reader = try lab.another(Self.readOnly)
        #expect(try reader.snapshot() == state)
        let damage = try reader.verify().journalDamage
        #expect(damage > 3000)
        reader.simulateKill()
        let before = lab.files.bytesRead
        try lab.reopen()
        #expect(try lab.store.snapshot() == state)
        #expect(lab.files.bytesRead - before < 20_000 * damage + 4 * length)
    }

    /// A follower that reads little at a time took a long line behind damage for a part of it.
    @Test(arguments: [false, true])
    func aLongRightLineBehindDamageWasPassedOver(readOnly: Bool) throws {
        let lab = try Lab()
        try lab.put(0..<6)
        _ = try lab.store.compact()
        let follower = try lab.another(readOnly ? Self.readOnly : nil)
        let start = try #require(lab.disk.contents(lab.journal)?.count)
        try lab.put(6..<7)
        let source = lab.key(0).source
        let spans = try (0..<20_000).map { try TileSpan(zoom: 20, columns: $0...$0, rows: $0...$0) }
        try lab.store.pin(PinnedRegion(name: "long", source: source, spans: spans))
        try lab.put(7..<8)
        let length = try #require(lab.disk.contents(lab.journal)?.count)
        #expect(length - start > 1 << 17)
        lab.disk.corrupt(lab.journal) { $0[start + 9] ^= 4 }
        try follower.catchUp()
        if !readOnly { _ = try follower.remove([lab.key(7)]) }
        #expect(try follower.regions().map(\.name) == ["long"])
        #expect(try follower.verify().journalDamage == 1)
        follower.simulateKill()
    }

    /// Small values take many times their room: a line of megabytes could take gigabytes.
    @Test func aLineOfMillionsOfValuesIsDamaged() throws {
        func parses(_ count: Int) -> Bool {
            let text = "[" + repeatElement("{}", count: count).joined(separator: ",") + "]"
            return Array(text.utf8).withUnsafeBytes { JSONValue($0) } != nil
        }
        #expect(parses(500_000))
        #expect(!parses(1 << 20))
    }

    /// Who asks whether all is well gets a journal that can be written to, or hears why not.
    @Test func aTailWithoutALineBreakWasLeftToTheNextWriter() throws {
        let lab = try Lab()
        try lab.put(0..<3)
        let length = try #require(lab.disk.contents(lab.journal)?.count)
        lab.disk.corrupt(lab.journal) { $0 += [UInt8](repeating: 0, count: 3_000_000) }
        #expect(try lab.store.verify().ok)
        #expect(lab.disk.contents(lab.journal)?.count == length)
        #expect(try lab.store.snapshot().entries.count == 3)
    }

    private static var readOnly: StoreConfiguration {
        var configuration = Lab.plain
        configuration.readOnly = true
        return configuration
    }
}
