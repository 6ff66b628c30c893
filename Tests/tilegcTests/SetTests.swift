import Foundation
import HTTPTypes
import Testing
import TileCacheTesting
import TileStore
import TileStoreTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// `publish` and `pull` as processes, from folders and over HTTP.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct SetTests {
    private let scratch: Scratch
    private let cache: String
    private let set: String

    init() throws {
        scratch = try Scratch()
        (cache, set) = (scratch("cache"), scratch("set"))
    }

    private func clear(_ name: String) {
        if FileManager.default.fileExists(atPath: scratch(name)) { removeFolder(scratch(name)) }
    }

    private func load(_ pyramid: Pyramid) throws {
        clear("in")
        try pyramid.write(to: scratch("in"))
        try succeed("import", cache, scratch("in"), "--source", "map")
    }

    private func publish(_ arguments: String...) throws -> [String: Any] {
        let outcome = try Child(["publish", cache, set, "--source", "map", "--json"] + arguments).wait()
        guard outcome.status == 0 else { throw TestFailure("publish: \(outcome.messages)") }
        return try outcome.json()
    }

    private func expectTiles(_ pyramid: Pyramid, in cache: String) throws {
        clear("out")
        try succeed("export", cache, scratch("out"), "--source", "map")
        #expect(try files(in: scratch("out")) == pyramid.tiles)
        #expect(try tilegc("verify", cache).status == 0)
    }

    /// A server of files; the gate holds back what is asked when the dam is full.
    private func server(_ mayPass: @escaping @Sendable (String) -> Bool = { _ in true }, _ gate: Gate = Gate())
        async throws -> LocalOrigin
    {
        let set = set
        return try await LocalOrigin.start { request in
            guard let data = FileManager.default.contents(atPath: set + request.path) else {
                return LocalAnswer(.notFound)
            }
            var answer = LocalAnswer(.ok, body: data)
            if !mayPass(request.path) { answer.gate = gate }
            return answer
        }
    }

    /// The same tiles are the same set, whatever they are published from.
    @Test(arguments: ["out.pmtiles", "out.mbtiles", "out", "other/set.json", "other"])
    func archivesArePublishedToo(name: String) throws {
        let pyramid = Pyramid(seed: 6, zooms: 0...4)
        try load(pyramid)
        let first = try publish()
        let from = scratch(name)
        if name.hasPrefix("other") {
            try succeed("publish", cache, scratch("other"), "--source", "map")
        } else {
            try succeed("export", cache, from, "--source", "map")
        }
        let report = try succeed("publish", from, scratch("new"), "--source", "map", "--json").json()
        #expect(report["root"] as? String == first["root"] as? String)
        #expect(report["tiles"] as? Int == pyramid.tiles.count && report["newBlobs"] as? Int == pyramid.unique)
        try succeed("pull", scratch("new"), scratch("copy"), "--source", "map")
        try expectTiles(pyramid, in: scratch("copy"))
        let wrong = try tilegc("publish", from, scratch("new"), "--source", "map", "--zoom", "3")
        #expect(wrong.status == 64)
    }

    @Test func aFormerVersionIsComparedAndGoneBackTo() throws {
        let (old, new) = (Pyramid(seed: 7, zooms: 0...4), Pyramid(seed: 8, zooms: 0...4))
        try load(old)
        let first = try #require(try publish()["root"] as? String)
        let copy = scratch("copy")
        try succeed("pull", set, copy, "--source", "map")
        try load(new)
        let second = try #require(try publish()["root"] as? String)
        try succeed("pull", set, copy, "--source", "map")
        try expectTiles(new, in: copy)
        let version = "\(set)/set.json@\(first.prefix(8))"
        let difference = try succeed("diff", version, set, "--json").json()
        #expect((difference["changed"] as? Int ?? 0) > 0)
        #expect(try succeed("diff", version, version, "--json").json()["changed"] as? Int == 0)

        let back = try succeed("publish", version, set, "--source", "map", "--json").json()
        #expect(back["root"] as? String == first && back["newBlobs"] as? Int == 0)
        let pulled = try succeed("pull", set, copy, "--source", "map", "--json").json()
        #expect(pulled["root"] as? String == first && pulled["delta"] as? Bool == true)
        try expectTiles(old, in: copy)
        // The other one is a former version now.
        try succeed("import", scratch("third"), "\(set)/set.json@\(second.prefix(12))", "--source", "map")
        try expectTiles(new, in: scratch("third"))
        for wrong in ["@", "@00000000", "@\(first.prefix(7))", "@\(first)0"] {
            #expect(try tilegc("diff", "\(set)/set.json\(wrong)", set).status == 66, "\(wrong)")
        }
    }

    @Test func differencesAreListedForOtherCommands() throws {
        let (old, new) = (Pyramid(seed: 9, zooms: 0...3), Pyramid(seed: 10, zooms: 0...3))
        try load(old)
        _ = try publish()
        try load(new)
        let report = try succeed("diff", set, cache, "--write-list", scratch("keys"), "--json").json()
        let changed = new.tiles.filter { old.tiles[$0.key] != $0.value }.count
        #expect(report["changed"] as? Int == changed && report["same"] as? Int == new.tiles.count - changed)
        let expired = try succeed("expire", cache, "--source", "map", "--list", scratch("keys"), "--json").json()
        #expect(expired["expired"] as? Int == changed && expired["unknown"] as? Int == 0)
        for wrong in [[scratch("nothing"), set], [set, scratch("nothing")], [set, scratch("keys")], ["", set]] {
            #expect([64, 66].contains(try tilegc("diff", wrong[0], wrong[1]).status), "\(wrong)")
        }
        #expect(try tilegc("diff", set, cache, "--source", "nobody").status == 66)
        #expect(try tilegc("diff", set, cache, "--write-list", scratch("no/where")).status == 66)
    }

    @Test func whatIsPublishedIsPulledFromAFolderAndRenewed() throws {
        let pyramid = Pyramid(seed: 5, zooms: 0...4)
        try load(pyramid)
        let first = try publish()
        #expect(first["tiles"] as? Int == pyramid.tiles.count)
        #expect(first["newBlobs"] as? Int == pyramid.unique)
        let copy = scratch("copy")
        let pulled = try succeed("pull", set, copy, "--source", "map", "--json").json()
        #expect(pulled["fetchedBlobs"] as? Int == pyramid.unique)
        #expect(pulled["root"] as? String == first["root"] as? String)
        try expectTiles(pyramid, in: copy)

        let again = try publish()
        #expect(again["newBlobs"] as? Int == 0 && again["newBytes"] as? Int == 0 && again["listBytes"] as? Int == 0)
        let nothing = try succeed("pull", set, copy, "--source", "map", "--json").json()
        #expect(nothing["requests"] as? Int == 1)

        let other = Pyramid(seed: 6, zooms: 0...4)
        try load(other)
        let second = try publish()
        #expect(second["root"] as? String != first["root"] as? String)
        try succeed("pull", set, copy, "--source", "map")
        try expectTiles(other, in: copy)
        let regions = try succeed("regions", copy, "--json").jsonLines()
        #expect(regions.count == 1 && regions[0]["name"] as? String == "map")
    }

    @Test func linkedBlobsAreTheCachesOwn() throws {
        try load(Pyramid(seed: 5, zooms: 0...2))
        let report = try publish("--link")
        #expect(report["shared"] as? Int == report["newBlobs"] as? Int)
        let copy = scratch("copy")
        try succeed("pull", set, copy, "--source", "map")
        try expectTiles(Pyramid(seed: 5, zooms: 0...2), in: copy)
    }

    @Test func metadataGoesAlong() throws {
        let pyramid = Pyramid(seed: 5, zooms: 0...2)
        try load(pyramid)
        try succeed(
            "export", cache, scratch("map.pmtiles"), "--source", "map", "--name", "A map", "--attribution", "Somebody")
        try succeed("import", cache, scratch("map.pmtiles"), "--source", "map")
        _ = try publish()
        let copy = scratch("copy")
        try succeed("pull", set, copy, "--source", "map")
        let text = try String(contentsOfFile: copy + "/sources/map.json", encoding: .utf8)
        #expect(text.contains("A map") && text.contains("Somebody"))
    }

    @Test func aPullOverHTTPThatIsKilledThreeTimesGoesOn() async throws {
        let pyramid = Pyramid(seed: 7, zooms: 0...5)
        try load(pyramid)
        let root = try #require(try publish()["root"] as? String)
        let left = Locked(0)
        let gate = Gate()
        let origin = try await server(
            { _ in
                left.withLock { left in
                    left -= 1
                    return left >= 0
                }
            }, gate)
        let copy = scratch("copy")
        for _ in 0..<3 {
            let asked = origin.requests.count
            left.withLock { $0 = 120 }
            let child = try Child(
                ["pull", origin.url, copy, "--source", "map", "--expect", root, "--concurrency", "4"])
            await origin.arrivals(asked + 124)
            child.send(SIGKILL)
            #expect(try child.wait().signal == SIGKILL)
            await origin.connectionsClosed()
        }
        left.withLock { $0 = .max }
        let report = try succeed("pull", origin.url, copy, "--source", "map", "--expect", root, "--json").json()
        #expect(report["tiles"] as? Int == pyramid.tiles.count)
        try expectTiles(pyramid, in: copy)
        let objects = origin.requests.map(\.path).filter { $0.hasPrefix("/objects/") }
        // Those that were under way, and those that waited for being stored together with others.
        #expect(objects.count - Set(objects).count <= 3 * (4 + 16))
        let before = origin.requests.count
        try succeed("pull", origin.url, copy, "--source", "map", "--expect", root)
        #expect(origin.requests.count == before + 1)
    }

    @Test func aPullThatIsInterruptedSaysSoAndGoesOn() async throws {
        let pyramid = Pyramid(seed: 8, zooms: 0...4)
        try load(pyramid)
        let root = try #require(try publish()["root"] as? String)
        let left = Locked(100)
        let gate = Gate()
        let origin = try await server(
            { _ in
                left.withLock { left in
                    left -= 1
                    return left >= 0
                }
            }, gate)
        let copy = scratch("copy")
        let child = try Child(["pull", origin.url, copy, "--source", "map", "--expect", root, "--concurrency", "2"])
        await origin.arrivals(102)
        child.send(SIGINT)
        left.withLock { $0 = .max }
        gate.open()
        let outcome = try child.wait()
        #expect(outcome.status == 130)
        #expect(outcome.messages.contains("interrupted"))
        try succeed("pull", origin.url, copy, "--source", "map", "--expect", root)
        try expectTiles(pyramid, in: copy)
        let objects = origin.requests.map(\.path).filter { $0.hasPrefix("/objects/") }
        #expect(objects.count - Set(objects).count <= 2)
    }

    @Test func aServerThatHangsDoesNotKeepAnInterruptFromEndingThePull() async throws {
        try load(Pyramid(seed: 8, zooms: 0...3))
        let root = try #require(try publish()["root"] as? String)
        let left = Locked(30)
        let origin = try await server { _ in
            left.withLock { left in
                left -= 1
                return left >= 0
            }
        }
        let child = try Child(["pull", origin.url, scratch("copy"), "--source", "map", "--expect", root])
        await origin.arrivals(38)
        child.send(SIGINT)
        let outcome = try child.wait()
        #expect(outcome.status == 130, "\(outcome.messages)")
    }

    @Test func aPublisherThatIsKilledLeavesTheOldSetWhole() throws {
        let (old, new) = (Pyramid(seed: 9, zooms: 0...4), Pyramid(seed: 10, zooms: 0...6))
        try load(old)
        _ = try publish()
        try load(new)
        var kills = 0
        for round in 0..<12 {
            let child = try Child(["publish", cache, set, "--source", "map"])
            if child.hasEnded(within: 3 + 9 * round) { break }
            child.send(SIGKILL)
            #expect(try child.wait().signal == SIGKILL)
            kills += 1
            let copy = scratch("copy-\(round)")
            try succeed("pull", set, copy, "--source", "map")
            let tiles = try succeed("stats", copy, "--json").json()["entries"] as? Int
            #expect(tiles == old.tiles.count + 1 || tiles == new.tiles.count + 1)
        }
        #expect(kills > 0)
        _ = try publish()
        #expect(try FileManager.default.contentsOfDirectory(atPath: set + "/staging").isEmpty)
        try succeed("pull", set, scratch("last"), "--source", "map")
        try expectTiles(new, in: scratch("last"))
    }

    @Test func whatGoesWrongHasItsStatus() async throws {
        try load(Pyramid(seed: 5, zooms: 0...2))
        let root = try #require(try publish()["root"] as? String)
        let origin = try await server()
        let copy = scratch("copy")
        let other = String(repeating: "a", count: 64)
        let table: [([String], Int32, String)] = [
            (["pull", scratch("nowhere"), copy, "--source", "map"], 66, "there is no"),
            (["pull", set, copy, "--source", "map", "--expect", other], 1, "nothing was done"),
            (["pull", set, copy, "--source", "map", "--expect", "12"], 64, "SHA-256"),
            (["pull", origin.url, copy, "--source", "map"], 64, "--expect"),
            (["pull", origin.url + "/nowhere", copy, "--source", "map", "--expect", root], 66, "there is no"),
            (["pull", "http://user:word@127.0.0.1", copy, "--source", "map"], 64, "no user or password"),
            (["publish", cache, set], 64, "'tilegc stats' lists them"),
            (["publish", set, scratch("other")], 64, "give the set a name, such as --source world"),
            (["publish", "\(set)/set.json", scratch("other")], 64, "give the set a name, such as --source world"),
            (["publish", cache, "--source", "map"], 64, "FOLDER"),
            (["publish", scratch("nowhere"), set, "--source", "map"], 66, "nowhere"),
            (["publish", cache, set, "--source", "mop"], 66, "map"),
            (["publish", cache, set, "--source", "map", "--zoom", "9"], 1, "no tile is selected"),
            (["publish", "--sweep", cache], 66, "there is no"),
            (["publish", "--sweep", set, set], 64, "--sweep"),
        ]
        for (arguments, status, words) in table {
            let outcome = try Child(arguments).wait()
            #expect(outcome.status == status, "\(arguments): \(outcome.messages)")
            #expect(outcome.messages.contains(words), "\(arguments): \(outcome.messages)")
            #expect(!FileManager.default.fileExists(atPath: copy), "\(arguments) has made a cache")
        }
        try succeed("publish", "--sweep", set)
    }

    @Test func aServerThatRefusesOrFailsIsSaid() async throws {
        let root = String(repeating: "a", count: 64)
        let copy = scratch("copy")
        let statuses: [(HTTPResponse.Status, Int32)] = [
            (.forbidden, 77), (.unauthorized, 77), (.movedPermanently, 66), (.gone, 66), (.internalServerError, 74),
        ]
        for (status, exit) in statuses {
            let origin = try await LocalOrigin.start { _ in LocalAnswer(status, text: "no") }
            let outcome = try Child(["pull", origin.url, copy, "--source", "map", "--expect", root]).wait()
            #expect(outcome.status == exit, "\(status): \(outcome.messages)")
        }
        #expect(!FileManager.default.fileExists(atPath: copy))
    }

    /// Damage on the server's disk: named, and the cache is as it was.
    @Test func aDamagedObjectIsNamed() throws {
        let pyramid = Pyramid(seed: 11, zooms: 0...3)
        try load(pyramid)
        _ = try publish()
        let copy = scratch("copy")
        try succeed("pull", set, copy, "--source", "map")
        try load(Pyramid(seed: 12, zooms: 0...3))
        _ = try publish()
        let before = try succeed("ls", copy, "--json").text
        let blobs = try files(in: set + "/objects").keys.filter { !$0.hasSuffix(".gz") }.sorted()
        for name in blobs {
            let path = "\(set)/objects/\(name)"
            var data = try #require(FileManager.default.contents(atPath: path))
            data[data.count - 1] ^= 1
            chmod(path, 0o644)
            try writeFile(data, to: path)
        }
        let outcome = try tilegc("pull", set, copy, "--source", "map")
        #expect(outcome.status == 1)
        #expect(outcome.messages.contains("has not the bytes of its name"))
        #expect(try succeed("ls", copy, "--json").text == before)
    }

    /// Deltas are lists too: verify reads them, and publishing makes a damaged one anew.
    @Test func aDamagedDeltaIsNamedAndPublishedAnew() throws {
        try load(Pyramid(seed: 7, zooms: 0...4))
        let first = try #require(try publish()["root"] as? String)
        try load(Pyramid(seed: 8, zooms: 0...4))
        _ = try publish()
        #expect(try tilegc("verify", set).status == 0)
        func delta() throws -> String {
            let row = try #require(
                (json(of: "\(set)/set.json")["deltas"] as? [[Any]])?.first { $0.first as? String == first })
            let digest = try #require(row[1] as? String)
            return "\(set)/objects/\(digest.prefix(2))/\(digest).gz"
        }
        for isLost in [true, false] {
            let path = try delta()
            if isLost {
                try FileManager.default.removeItem(atPath: path)
            } else {
                chmod(path, 0o644)
                try writeFile(Data("no gzip".utf8), to: path)
            }
            let found = try tilegc("verify", set)
            #expect(found.status == 1 && found.text.contains("delta from version \(first)"), "\(found.text)")
            #expect(found.text.contains(isLost ? "is missing: publish the set again" : "is damaged"), "\(found.text)")
            _ = try publish()
            #expect(try tilegc("verify", set).text.contains("It is sound."))
            _ = try delta()
        }
    }

    /// Tiles of a server that calls all files octets are published, exported and converted as the pictures that they are.
    @Test(arguments: ["application/octet-stream", "text/plain"])
    func picturesWithAWrongTypeArePictures(type: String) async throws {
        let fields: HTTPFields = [.cacheControl: "max-age=3600"]
        var site = TileSite(zooms: 0...2, fields: fields)
        for (number, path) in site.paths.enumerated() {
            site.set(path, TileSite.noise(zoom: 2, column: number, row: 0), type: type, fields: fields)
        }
        let made = site
        let origin = try await LocalOrigin.start { made.answer($0) }
        try succeed(
            "seed", cache, "--source", "map", "--url", origin.url + "/{z}/{x}/{y}.png", "--kind", "any", "--bbox",
            "-180,-85,180,85", "--zoom", "0-2")
        try await origin.stop()
        _ = try publish()
        for name in ["a.pmtiles", "a.mbtiles"] {
            try succeed("export", cache, scratch(name), "--source", "map")
            try succeed("convert", set, scratch("b-\(name)"))
        }
        for path in [set, scratch("a.pmtiles"), scratch("a.mbtiles"), scratch("b-a.pmtiles"), scratch("b-a.mbtiles")] {
            #expect(try succeed("info", path, "--json").json()["tileFormat"] as? String == "png", "\(path)")
        }
        try succeed("export", cache, scratch("out"), "--source", "map")
        #expect(try files(in: scratch("out")).keys.allSatisfy { $0.hasSuffix(".png") || $0 == "metadata.json" })
    }

    /// Another publisher may name a former root twice, or the present one after going back to it.
    @Test func aRootThatStandsTwiceIsOneVersion() throws {
        try load(Pyramid(seed: 7, zooms: 0...3))
        let first = try #require(try publish()["root"] as? String)
        try load(Pyramid(seed: 8, zooms: 0...3))
        let second = try #require(try publish()["root"] as? String)
        var document = try json(of: "\(set)/set.json")
        let row = try #require((document["kept"] as? [[Any]])?.first)
        let own: [Any] = [second, try #require(document["rootLength"]), row[2]]
        document["kept"] = [row, own, row]
        try writeFile(try JSONSerialization.data(withJSONObject: document), to: "\(set)/set.json")
        for root in [first, second] {
            let found = try succeed("info", "\(set)/set.json@\(root.prefix(8))", "--json").json()
            #expect(found["root"] as? String == root)
            #expect((found["versions"] as? [Any])?.count == 2)
        }
        try succeed("verify", set)
        try succeed("publish", "\(set)/set.json@\(first.prefix(8))", set, "--source", "map")
        let kept = try #require(try json(of: "\(set)/set.json")["kept"] as? [[Any]])
        #expect(kept.map { $0[0] as? String } == [second])
    }

    /// Publishing, pulling and verifying follow it, so sweeping does.
    @Test func aSetWhoseObjectsAreALinkIsSwept() throws {
        try load(Pyramid(seed: 7, zooms: 0...3))
        _ = try publish()
        try FileManager.default.moveItem(atPath: "\(set)/objects", toPath: scratch("elsewhere"))
        try FileManager.default.createSymbolicLink(atPath: "\(set)/objects", withDestinationPath: scratch("elsewhere"))
        try load(Pyramid(seed: 8, zooms: 0...3))
        _ = try publish()
        let name = String(repeating: "ab", count: 32)
        try FileManager.default.createDirectory(
            atPath: scratch("elsewhere/ab"), withIntermediateDirectories: true)
        try writeFile(Data([1]), to: scratch("elsewhere/ab/\(name)"))
        var times = [timespec(tv_sec: 1_600_000_000, tv_nsec: 0), timespec(tv_sec: 1_600_000_000, tv_nsec: 0)]
        #expect(utimensat(AT_FDCWD, scratch("elsewhere/ab/\(name)"), &times, 0) == 0)
        #expect(try succeed("publish", "--sweep", set, "--json").json()["deleted"] as? Int == 1)
        try succeed("verify", set)
    }

    /// It is said to be a link, whether it leads somewhere or not.
    @Test(arguments: ["real.json", "nowhere.json"])
    func aLinkInPlaceOfTheDocumentIsNamed(target: String) throws {
        try load(Pyramid(seed: 7, zooms: 0...2))
        _ = try publish()
        try FileManager.default.moveItem(atPath: "\(set)/set.json", toPath: "\(set)/real.json")
        try FileManager.default.createSymbolicLink(atPath: "\(set)/set.json", withDestinationPath: target)
        let commands = [
            ["verify", set], ["info", set], ["publish", cache, set, "--source", "map"], ["publish", "--sweep", set],
            ["pull", set, scratch("copy"), "--source", "map"],
        ]
        for command in commands {
            let outcome = try Child(command).wait()
            #expect(outcome.status != 0 && outcome.messages.contains("set.json is a link"), "\(outcome.messages)")
        }
        // The folder may be one.
        try FileManager.default.removeItem(atPath: "\(set)/set.json")
        try FileManager.default.moveItem(atPath: "\(set)/real.json", toPath: "\(set)/set.json")
        try FileManager.default.createSymbolicLink(atPath: scratch("link"), withDestinationPath: set)
        try succeed("verify", scratch("link"))
    }

    private func json(of path: String) throws -> [String: Any] {
        let data = try #require(FileManager.default.contents(atPath: path))
        return try #require(try JSONSerialization.jsonObject(with: data) as? [String: Any])
    }
}
