import Foundation
import Testing

@testable import TileStore

@Suite(.timeLimit(.minutes(60)))
struct NeverOpenedTests {
    /// It stands in for a store whose folder could not be opened: no call traps, none touches a file.
    @Test func aStoreThatWasNeverOpenedSaysThatItIsClosed() throws {
        let store = TileStore(neverOpenedAt: "/nowhere/at/all")
        let key = try TileKey(source: "s", z: 1, x: 0, y: 0)
        let now = Timestamp(seconds: 1)
        let calls: [() throws -> Void] = [
            { _ = try store.read(key) }, { _ = try store.readNow(key) }, { _ = try store.entry(for: key) },
            { _ = try store.put(Data([1]), for: key, metadata: TileMetadata(storedAt: now, expires: now)) },
            { _ = try store.statistics() }, { _ = try store.regions() }, { _ = try store.remove(EntrySelection()) },
            { _ = try store.verify() },
        ]
        for (number, call) in calls.enumerated() {
            do {
                try call()
                Issue.record("call \(number) went through")
            } catch let error as StoreError {
                #expect(error.code == .closed || error.code == .readOnly, "call \(number): \(error)")
            }
        }
        try store.close()
        #expect(store.isReadOnly && store.fingerprint(of: "a") != store.fingerprint(of: "b"))
    }
}
