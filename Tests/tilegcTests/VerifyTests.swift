import Foundation
import Testing
import TileStoreTesting

/// What `verify` finds, what it does about it, and what the other commands do with a damaged cache.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct VerifyTests {
    private let scratch: Scratch
    private let cache: String

    init() throws {
        scratch = try Scratch()
        cache = scratch("cache")
        try Sample.make(at: cache)
    }

    /// The path of an entry's blob.
    private func blob(_ key: String) throws -> String {
        let name = try #require(try tilegc("show", cache, key, "--json").json()["blob"] as? String)
        return "cache/objects/\(name.prefix(2))/\(name)"
    }

    private func verify(_ options: String..., status: Int32) throws -> [String: Any] {
        let outcome = try Child(["verify", cache, "--json"] + options).wait()
        #expect(outcome.status == status, "\(outcome.text) \(outcome.messages)")
        return try outcome.json()
    }

    /// Overwrites a file, whatever its mode.
    private func damage(_ name: String, _ data: Data) throws {
        try FileManager.default.removeItem(atPath: scratch(name))
        try scratch.write(data, to: name)
    }

    @Test func damageIsFoundAndRepaired() throws {
        let path = try blob("osm/2/0/0")
        try damage(path, Data(repeating: 0, count: Pyramid.ocean.count))
        let found = try verify(status: 1)
        #expect(found["damaged"] as? Int == 1)
        #expect((found["damagedBlobs"] as? [String])?.count == 1)
        #expect(found["ok"] as? Bool == false)
        let text = try tilegc("verify", cache)
        #expect(text.status == 1)
        #expect(text.text.contains("damaged: blob"))
        #expect(text.text.contains("--repair"))

        let repaired = try verify("--repair", status: 0)
        #expect(repaired["damaged"] as? Int == 1)
        #expect(repaired["ok"] as? Bool == true)
        let after = try verify(status: 0)
        #expect(after["entries"] as? Int == 11)
        #expect(after["damaged"] as? Int == 0)
        #expect(try tilegc("cat", cache, "osm/2/0/0").status == 66)
    }

    @Test func aMissingBlobIsFoundAndRepaired() throws {
        try FileManager.default.removeItem(atPath: scratch(try blob("osm/2/0/1")))
        #expect(try verify("--quick", status: 1)["missing"] as? Int == 1)
        #expect(try verify(status: 1)["missing"] as? Int == 1)
        #expect(try verify("--repair", status: 0)["missing"] as? Int == 1)
        #expect(try verify(status: 0)["entries"] as? Int == 18)
    }

    @Test func orphansAreNoFailure() throws {
        let name = String(repeating: "ab", count: 32)
        try scratch.write(Data("orphan".utf8), to: "cache/objects/ab/\(name)")
        let found = try verify(status: 0)
        #expect(found["orphans"] as? Int == 1)
        #expect(found["orphanFiles"] as? [String] == ["objects/ab/\(name)"])
        #expect(found["ok"] as? Bool == true)
        _ = try verify("--repair", status: 0)
        #expect(try verify(status: 0)["orphans"] as? Int == 0)
    }

    @Test func damagedTilesFailAnExport() throws {
        try damage(try blob("osm/2/0/1"), Data("?".utf8))
        let outcome = try tilegc("export", cache, scratch("out"), "--source", "osm", "--json")
        #expect(outcome.status == 1)
        #expect(try outcome.json()["tiles"] as? Int == 15)
        #expect(try outcome.json()["failed"] as? Int == 1)
        #expect(outcome.messages.contains("osm/2/0/1"))
        #expect(try files(in: scratch("out")).count == 15)
    }

    @Test func damagedBytesAreNeverWrittenOut() throws {
        try damage(try blob("osm/2/0/1"), Data(repeating: 1, count: 16))
        let outcome = try tilegc("cat", cache, "osm/2/0/1")
        #expect(outcome.status == 74 || outcome.status == 66)
        #expect(outcome.output.isEmpty)
        #expect(outcome.messages.hasPrefix("tilegc: "))
    }
}
