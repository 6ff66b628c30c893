import ContentCoding
import Foundation
import HTTPCaching
import HTTPTypes
import Testing
import TileArchive
import TileArchiveTesting
import TileCache
import TileCacheTesting
import TileSets
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// Published sets at a server as sources of the proxy, asked over a socket.
@Suite("Sets at a server", .timeLimit(.minutes(60)))
struct RemoteSetTests {
    private static let url = "https://files.example/maps/set.json"

    private let salt = " \(UUID())"

    private func png(_ text: String) -> Data { TileLab.png(text + salt) }

    private func with(
        _ publisher: PublisherInLab, fields: HTTPFields = [.cacheControl: "max-age=60"],
        _ change: (inout SourceConfiguration) -> Void = { _ in }, _ body: (TileLab, FolderSite) async throws -> Void
    ) async throws {
        let maps = publisher.folder + "/maps"
        if !FileManager.default.fileExists(atPath: maps) {
            #expect(symlink(publisher.folder + "/set", maps) == 0)
        }
        let site = FolderSite(publisher.folder, fields: fields)
        try await TileLab.with("s=" + Self.url, change, origin: { try TileLab.Answer(site.answer($0)) }) {
            try await body($0, site)
        }
    }

    private func expect(_ lab: TileLab, _ name: String, _ tiles: [Int: String], _ note: String) async throws {
        try await lab.expect(name, tiles.mapValues { $0 + salt }, note)
    }

    private func keys(_ lab: TileLab) throws -> [String] {
        var keys: [String] = []
        try lab.store.forEachEntry { keys.append("\($0.key)") }
        return keys
    }

    private func object(_ text: String) -> String {
        "/maps/" + SetPaths.blob(png(text).withUnsafeBytes { BlobDigest(hashing: $0) })
    }

    // MARK: What is right

    @Test(arguments: [nil, "max-age=60", "no-cache", "max-age=0, must-revalidate"])
    func eachFileIsFetchedOnceAndEqualTilesAreOneFile(control: String?) async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 1: "sea", 2: "land"])
        try await with(publisher, fields: control.map { [.cacheControl: $0] } ?? [:]) { lab, _ in
            let first = try await lab.get("/tiles/s/2/0/1.png")
            #expect(first.status == 200 && first.body == png("sea") && first[.contentType] == "image/png")
            #expect(first[.cacheControl] == "public, max-age=60" && first[.age] == "0")
            #expect(first[.cacheStatus] == "tileproxy; fwd=uri-miss; ttl=60; stored")
            try await expect(lab, "s", [0: "sea", 1: "sea", 2: "land"], "the first version")
            let asked = lab.origin.paths()
            #expect(asked.count == 5 && Set(asked).count == 5, "set.json, root, chunk, two bodies: \(asked)")
            #expect(asked.first == "/maps/set.json" && asked.contains(object("sea")) && asked.contains(object("land")))
            let hit = try await lab.get("/tiles/s/2/1/1.png")
            #expect(hit[.cacheStatus] == "tileproxy; hit; ttl=60")
            #expect(try await lab.get("/tiles/s/2/1/1.png", [.ifNoneMatch: hit[.eTag] ?? ""]).status == 304)
            #expect(try await lab.get("/tiles/s/7/1/1.png").status == 404)
            #expect(lab.origin.count == 0)
        }
    }

    @Test func aNewVersionIsTakenUpWithinTenSecondsAndCostsWhatIsNew() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 1: "sea", 2: "land"])
        // However fresh its server says that set.json is.
        let fields: HTTPFields = [.cacheControl: "max-age=86400, stale-while-revalidate=86400"]
        try await with(publisher, fields: fields) { lab, _ in
            try await expect(lab, "s", [0: "sea", 1: "sea", 2: "land"], "the first version")
            _ = lab.origin.paths()
            for _ in 0..<3 {
                lab.clock.advance(seconds: 9)
                let renewed = try await lab.get("/tiles/s/2/0/1")
                #expect(renewed[.cacheStatus] == "tileproxy; fwd=stale; fwd-status=304; ttl=60; stored")
                try await expect(lab, "s", [0: "sea", 1: "sea", 2: "land"], "nothing new")
            }
            #expect(lab.origin.paths() == ["/maps/set.json", "/maps/set.json", "/maps/set.json"])
            try publisher.publish([0: "sea", 1: "city", 3: "land"])
            lab.clock.advance(seconds: 9)
            try await expect(lab, "s", [0: "sea", 1: "city", 3: "land"], "the second version")
            let asked = lab.origin.paths()
            #expect(asked.count == 4 && asked.contains(object("city")), "set.json, root, chunk, one body: \(asked)")
        }
    }

    @Test func versionsNeverChangeAndStandBesideEachOther() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        try await with(publisher) { lab, _ in
            try await expect(
                lab, "s@" + publisher.versions[0].root.prefix(8), [0: "sea", 2: "land"], "asked for at first")
            try publisher.publish([0: "ice", 1: "city"])
            lab.clock.advance(seconds: 10)
            try await expect(lab, "s", [0: "ice", 1: "city"], "the latest version")
            for (root, tiles) in publisher.versions {
                for digits in [8, 16, 64] {
                    let name = "s@" + root.prefix(digits)
                    try await expect(lab, name, tiles, "version \(name)")
                    let answer = try await lab.get("/tiles/\(name)/2/0/1.png")
                    #expect(answer[.cacheControl] == "public, max-age=31536000, immutable")
                    #expect(answer[.cacheStatus] == "tileproxy; hit; ttl=31536000")
                }
                let text = try await lab.get("/tiles/s@\(root.prefix(8)).json").text
                #expect(text.contains("/tiles/s@\(root.prefix(16))/{z}/{x}/{y}.png"))
                let stats = try await lab.get("/_tileproxy/stats.json").text
                #expect(stats.contains("\"id\":\"\(root.prefix(16))\""))
            }
            let roots = publisher.versions.map(\.root)
            let wrong = [
                "s@" + roots[0].prefix(7), "s@" + roots[0].prefix(8).uppercased() + "G", "s@", "s@" + roots[0] + "0",
                "s@00000000", "t@" + roots[0].prefix(8), "@" + roots[0].prefix(8), "s@@" + roots[0].prefix(8),
            ]
            for name in wrong {
                let answer = try await lab.get("/tiles/\(name)/2/0/1.png")
                let words = name.hasPrefix("s@") ? "The set has no such version." : "There is no such source."
                #expect(answer.status == 404 && answer.text.contains(words), "\(name): \(answer.text)")
                #expect(try await lab.get("/tiles/\(name).json").status == 404, "\(name)")
            }
            let text = try await lab.get("/tiles/s.json").text
            #expect(text.contains("/tiles/s/{z}/{x}/{y}.png") && text.contains("\"maxzoom\":2"))
        }
    }

    @Test func listsAreNotEvictedBeforeTheTilesThatTheyLeadTo() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        try await with(publisher) { lab, _ in
            #expect(try await lab.get("/tiles/s/2/0/1").status == 200)
            for _ in 0..<3 {
                lab.clock.advance(seconds: 120)
                #expect(try await lab.get("/tiles/s/2/0/1").status == 200)
                try lab.store.flush()
                let lists = try keys(lab).filter { $0.hasSuffix(".gz") }
                #expect(lists.count == 2, "the root and a chunk")
                for list in lists {
                    let entry = try lab.store.entry(for: TileKey(list))
                    #expect(entry.map { lab.clock.now.seconds - $0.lastUsed.seconds < 60 } == true, "\(list)")
                }
            }
        }
    }

    @Test func withoutItsServerWhatIsCachedIsServedAsStale() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let fields: HTTPFields = [.cacheControl: "max-age=60, stale-if-error=86400"]
        try await with(publisher, fields: fields) { lab, site in
            #expect(try await lab.get("/tiles/s/2/0/1").status == 200)
            site.isAway(true)
            lab.clock.advance(seconds: 120)
            let stale = try await lab.get("/tiles/s/2/0/1")
            #expect(stale.status == 200 && stale.body == png("sea") && stale[.age] == "120")
            #expect(stale[.cacheStatus]?.contains("ttl=-111") == true, "\(stale[.cacheStatus] ?? "")")
            #expect(try await lab.get("/tiles/s/2/3/1").status == 404, "by the list that is cached")
            let missing = try await lab.get("/tiles/s/2/2/1")
            #expect(missing.status == 502 || missing.status == 504)
            let old = try await lab.get("/tiles/s@\(publisher.versions[0].root.prefix(8))/2/0/1")
            #expect(old.status == 200)
            site.isAway(false)
            lab.clock.advance(seconds: 600)
            try await expect(lab, "s", [0: "sea", 2: "land"], "when it is back")
        }
    }

    @Test func whoMayNotAskTheServerGetsWhatIsThere() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        try await with(publisher) { lab, _ in
            let only: HTTPFields = [.cacheControl: "only-if-cached"]
            let none = try await lab.get("/tiles/s/2/0/1", only)
            #expect(none.status == 504 && lab.origin.count == 0)
            #expect(try await lab.get("/tiles/s/2/0/1").status == 200)
            let count = lab.origin.count
            #expect(try await lab.get("/tiles/s/2/0/1", only).status == 200)
            #expect(try await lab.get("/tiles/s/2/2/1", only).status == 504)
            #expect(lab.origin.count == count)
        }
    }

    @Test func manyWhoWaitShareEachQuestion() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 1: "sea", 2: "land"])
        try await with(publisher) { lab, _ in
            try await withThrowingTaskGroup(of: Bool.self) { group in
                for client in 0..<96 {
                    group.addTask {
                        let x = client % 3
                        let answer = try await lab.get("/tiles/s/2/\(x)/1")
                        return answer.body == png(x == 2 ? "land" : "sea")
                    }
                }
                for try await isRight in group { #expect(isRight) }
            }
            let asked = lab.origin.paths()
            #expect(asked.count == 5 && Set(asked).count == 5, "\(asked)")
        }
    }

    @Test func secretsAndQueriesGoWithEachRequest() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let site = FolderSite(publisher.folder)
        #expect(symlink(publisher.folder + "/set", publisher.folder + "/maps") == 0)
        try await TileLab.with("s=" + Self.url + "?token=xyz/uvw", origin: { try TileLab.Answer(site.answer($0)) }) {
            lab in
            let tile = try await lab.get("/tiles/s/2/0/1")
            #expect(tile.status == 200)
            let asked = lab.origin.paths()
            #expect(asked.count == 4 && asked.allSatisfy { $0.hasSuffix("?token=xyz/uvw") })
            #expect(asked.last == object("sea") + "?token=xyz/uvw")
            #expect(try keys(lab).allSatisfy { !$0.contains("xyz") })
        }
    }

    // MARK: A version that cannot be had yet

    /// Once the new `set.json` was stored, all tiles were errors until its lists could be had, though the former version was cached.
    @Test func theFormerVersionIsServedWhileTheNewOneCannotBeHad() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        let fields: HTTPFields = [.cacheControl: "max-age=60, stale-if-error=86400"]
        try await with(publisher, fields: fields) { lab, site in
            try await expect(lab, "s", [0: "sea", 2: "land"], "the first version")
            try publisher.publish([0: "ice", 1: "city"])
            // Whoever copies it is not done.
            site.twist { request, answer in
                if request.path != "/maps/set.json" { answer = SiteAnswer(status: 404) }
            }
            lab.clock.advance(seconds: 10)
            let stale = try await lab.get("/tiles/s/2/0/1")
            #expect(stale.status == 200 && stale.body == png("sea"))
            let note = stale[.cacheStatus] ?? ""
            #expect(note.hasPrefix("tileproxy; fwd=stale") && note.contains("detail=stale-if-error"), "\(note)")
            #expect(try await lab.get("/tiles/s/2/1/1").status == 404, "by the former version's list")
            site.isAway(true)
            lab.clock.advance(seconds: 60)
            try await expect(lab, "s", [0: "sea", 2: "land"], "without its server")
            #expect(try await lab.get("/tiles/s/2/0/1", [.cacheControl: "only-if-cached"]).status == 504)
            site.isAway(false)
            site.twist { _, _ in }
            lab.clock.advance(seconds: 600)
            try await expect(lab, "s", [0: "ice", 1: "city"], "all of the new version is there")
        }
    }

    /// With `no-cache` the first who asked was refused, and whoever came within the next nine seconds was not.
    @Test(arguments: ["max-age=60, must-revalidate", "no-cache"])
    func theFormerVersionIsNotServedWhereItsServerForbidsStaleAnswers(control: String) async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        try await with(publisher, fields: [.cacheControl: control]) { lab, site in
            try await expect(lab, "s", [0: "sea"], "the first version")
            try publisher.publish([0: "ice"])
            site.twist { request, answer in
                if request.path != "/maps/set.json" { answer = SiteAnswer(status: 503) }
            }
            lab.clock.advance(seconds: 10)
            for _ in 0..<3 {
                let refused = try await lab.get("/tiles/s/2/0/1")
                #expect(refused.status == 502 || refused.status == 504)
            }
        }
    }

    /// A version two before, which somebody had looked at, said that there is no tile where the one before has one.
    @Test func aTileThatALaterListNamesIsNotAbsentByAnEarlierOne() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let fields: HTTPFields = [.cacheControl: "max-age=60, stale-if-error=86400"]
        try await with(publisher, fields: fields) { lab, site in
            try await expect(lab, "s", [0: "sea"], "the first version")
            try publisher.publish([0: "sea", 1: "city"])
            lab.clock.advance(seconds: 10)
            let other = try await lab.get("/tiles/s/2/0/1")
            #expect(other.status == 200, "the second version's list is here, but not all of its tiles")
            try publisher.publish([0: "sea", 1: "town"])
            site.twist { request, answer in
                if request.path != "/maps/set.json" { answer = SiteAnswer(status: 404) }
            }
            lab.clock.advance(seconds: 10)
            let status = try await lab.get("/tiles/s/2/1/1").status
            #expect(status == 502 || status == 504)
            #expect(try await lab.get("/tiles/s/2/0/1").body == png("sea"))
            #expect(try await lab.get("/tiles/s/2/3/1").status == 404, "no list has it")
        }
    }

    /// Gives an older `set.json` once, and then none.
    private func letAnOlderDocumentCome(_ old: Data, at site: FolderSite) {
        let asked = Locked(0)
        site.twist { request, answer in
            guard request.path == "/maps/set.json" else { return }
            let number = asked.withLock { asked in
                asked += 1
                return asked
            }
            guard number == 1 else { return answer = SiteAnswer(status: 503) }
            (answer.status, answer.body) = (200, old)
            answer.fields[.eTag] = "\"old\""
        }
    }

    /// Tiles were fresh for nine seconds where an older `set.json` had come and could not be asked for once more; and where somebody
    /// asked for the description then, the older version was served as the latest one.
    @Test(arguments: [false, true])
    func anOlderDocumentThatCannotBeReadAnewIsNotBelieved(isDescribed: Bool) async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let fields: HTTPFields = [.cacheControl: "max-age=60, stale-if-error=86400"]
        try await with(publisher, fields: fields) { lab, site in
            try await expect(lab, "s", [0: "sea"], "the first version")
            let old = try Data(contentsOf: URL(fileURLWithPath: publisher.path))
            try publisher.publish([0: "ice"])
            lab.clock.advance(seconds: 10)
            try await expect(lab, "s", [0: "ice"], "the second version")
            letAnOlderDocumentCome(old, at: site)
            lab.clock.advance(seconds: 10)
            for _ in 0..<3 {
                if isDescribed { #expect(try await lab.get("/tiles/s.json").status == 200) }
                let stale = try await lab.get("/tiles/s/2/0/1")
                #expect(stale.status == 200 && stale.body == png("ice"))
                let note = stale[.cacheStatus] ?? ""
                #expect(note.contains("ttl=0; detail=stale-if-error"), "\(note)")
                #expect(stale[.cacheControl] == "public, max-age=0")
            }
        }
    }

    /// `/tiles/s@ID.json` named the tiles of the latest version where `set.json` could not be had, whatever the ID.
    @Test func theDescriptionOfAVersionIsNeverThatOfAnother() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        try await with(publisher, fields: [.cacheControl: "max-age=1, must-revalidate"]) { lab, site in
            let name = "s@" + publisher.versions[0].root.prefix(16)
            site.isAway(true)
            for name in [name, "s@ffffffffffff"] {
                #expect(try await lab.get("/tiles/\(name).json").status == 502)
            }
            let makeshift = try await lab.get("/tiles/s.json")
            #expect(makeshift.status == 200 && makeshift[.cacheControl] == "no-store")
            site.isAway(false)
            lab.clock.advance(seconds: 600)
            try await expect(lab, name, [0: "sea"], "at first")
            #expect(try await lab.get("/tiles/s.json")[.cacheControl] == "public, max-age=60")
            site.isAway(true)
            lab.clock.advance(seconds: 600)
            let known = try await lab.get("/tiles/\(name).json")
            #expect(known.status == 200 && known.text.contains("/tiles/\(name)/"), "\(known.text)")
            // Whether there is another one cannot be known.
            let other = try await lab.get("/tiles/s@ffffffffffff.json").status
            #expect(other == 502)
            let tile = try await lab.get("/tiles/s@ffffffffffff/2/0/1").status
            #expect(tile == 502 || tile == 504, "not a 404: \(tile)")
        }
    }

    /// Without the lists of the newest version its description had neither zooms nor layers, and was kept by others.
    @Test func theDescriptionOfTheFormerVersionStandsIn() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        try await with(publisher) { lab, site in
            #expect(try await lab.get("/tiles/s.json").text.contains("\"maxzoom\":2"))
            try publisher.publish([0: "ice"])
            site.twist { request, answer in
                if request.path != "/maps/set.json" { answer = SiteAnswer(status: 404) }
            }
            lab.clock.advance(seconds: 10)
            let makeshift = try await lab.get("/tiles/s.json")
            #expect(
                makeshift.text.contains("\"maxzoom\":2") && makeshift[.cacheControl] == "no-store", "\(makeshift.text)")
        }
    }

    @Test func theFormerVersionDoesNotSayThatThereIsNoTile() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let fields: HTTPFields = [.cacheControl: "max-age=60, stale-if-error=86400"]
        try await with(publisher, fields: fields) { lab, site in
            try await expect(lab, "s", [0: "sea"], "the first version")
            try publisher.publish([0: "sea", 2: "land"])
            let missing = object("land")
            site.twist { request, answer in if request.path == missing { answer = SiteAnswer(status: 404) } }
            lab.clock.advance(seconds: 10)
            let status = try await lab.get("/tiles/s/2/2/1").status
            #expect(status == 502 || status == 504, "\(status)")
        }
    }

    /// Lists that were in memory were never stored again after somebody had removed them.
    @Test func listsThatWereRemovedAreStoredAgain() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        try await with(publisher) { lab, _ in
            try await expect(lab, "s", [0: "sea"], "at first")
            _ = try lab.store.remove(try keys(lab).map { try TileKey($0) })
            lab.clock.advance(seconds: 61)
            try await expect(lab, "s", [0: "sea"], "again")
            while try keys(lab).filter({ $0.hasSuffix(".gz") }).count < 2 { await Task.yield() }
        }
    }

    /// Each tile that it led to had it asked for once more.
    @Test func aListThatIsGoneIsNotAskedForWithEachTile() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        try await with(publisher) { lab, site in
            try await expect(lab, "s", [0: "sea"], "at first")
            _ = try lab.store.remove(try keys(lab).map { try TileKey($0) })
            site.twist { request, answer in
                if request.path?.hasSuffix(".gz") == true { answer = SiteAnswer(status: 404) }
            }
            lab.clock.advance(seconds: 61)
            _ = lab.origin.paths()
            for _ in 0..<20 { try await expect(lab, "s", [0: "sea"], "by what is in memory") }
            let asked = lab.origin.paths().filter { $0.hasSuffix(".gz") }
            #expect(asked.count <= 2, "the root and the chunk: \(asked)")
        }
    }

    /// Whoever was told of a new version got a 404 until `set.json` was asked for again.
    @Test func aVersionNewerThanTheDocumentIsLookedFor() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        try await with(publisher) { lab, _ in
            try await expect(lab, "s", [0: "sea"], "the first version")
            try publisher.publish([0: "ice"])
            lab.clock.advance(seconds: 3)
            try await expect(lab, "s@" + publisher.versions[1].root.prefix(8), [0: "ice"], "the second one")
            try publisher.publish([0: "city"])
            lab.clock.advance(seconds: 3)
            let description = try await lab.get("/tiles/s@\(publisher.versions[2].root.prefix(8)).json")
            #expect(description.status == 200)
            _ = lab.origin.paths()
            for _ in 0..<5 {
                #expect(try await lab.get("/tiles/s@00000000/2/0/1").status == 404)
                #expect(try await lab.get("/tiles/s@00000000.json").status == 404)
            }
            #expect(lab.origin.paths().isEmpty, "it was read a moment ago")
            lab.clock.advance(seconds: 3)
            for _ in 0..<5 { #expect(try await lab.get("/tiles/s@00000000/2/0/1").status == 404) }
            #expect(lab.origin.paths() == ["/maps/set.json"])
        }
    }

    // MARK: What goes wrong

    /// A set that is renewed between the reading of its document and of a file that only the former version names.
    @Test func aFileThatIsGoneHasTheDocumentReadAnew() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        try await with(publisher) { lab, site in
            #expect(try await lab.get("/tiles/s/2/0/1").status == 200)
            let gone = object("land")
            try publisher.publish([0: "sea", 2: "city"])
            site.twist { request, answer in if request.path == gone { answer = SiteAnswer(status: 404) } }
            _ = lab.origin.paths()
            // Within the ten seconds, but not at once.
            lab.clock.advance(seconds: 3)
            let answer = try await lab.get("/tiles/s/2/2/1")
            #expect(answer.status == 200 && answer.body == png("city"))
            let asked = lab.origin.paths()
            #expect(asked.count == 5 && Array(asked.prefix(2)) == [gone, "/maps/set.json"], "\(asked)")
            // One that the latest version names and that is missing all the same is an error, and is left alone for a while.
            let missing = object("sea")
            site.twist { request, answer in if request.path == missing { answer = SiteAnswer(status: 404) } }
            let key = try TileKey("s:set/" + String(missing.split(separator: "/").last ?? ""))
            #expect(try lab.store.remove([key]).removedEntries == 1)
            for _ in 0..<20 {
                let status = try await lab.get("/tiles/s/2/0/1").status
                #expect(status == 502 || status == 504)
            }
            #expect(lab.origin.paths().count <= 4)
        }
    }

    /// Clocks of servers are set, and servers stand for one another.
    @Test func aDocumentWithAnEarlierDateIsTheOneThatCounts() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        try await with(publisher) { lab, site in
            let ahead = Locked<Int64>(600)
            site.twist { _, answer in
                answer.fields[.date] = HTTPDate(seconds: lab.clock.now.seconds + ahead.withLock { $0 }).description
            }
            try await expect(lab, "s", [0: "sea"], "at first")
            ahead.withLock { $0 = 0 }
            try publisher.publish([0: "ice", 1: "city"])
            lab.clock.advance(seconds: 10)
            try await expect(lab, "s", [0: "ice", 1: "city"], "with an earlier date")
            _ = lab.origin.paths()
            try await expect(lab, "s", [0: "ice", 1: "city"], "again")
            #expect(lab.origin.paths().isEmpty)
            site.isAway(true)
            lab.clock.advance(seconds: 100)
            try await expect(lab, "s", [0: "ice", 1: "city"], "without its server")
        }
    }

    /// What a version is does not change: nobody waits for its set.json.
    @Test func tilesOfAVersionDoNotAskForTheDocument() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        try await with(publisher) { lab, site in
            let name = "s@" + publisher.versions[0].root.prefix(16)
            try await expect(lab, name, [0: "sea"], "at first")
            _ = lab.origin.paths()
            site.isAway(true)
            lab.clock.advance(seconds: 3600)
            try await expect(lab, name, [0: "sea"], "an hour later")
            #expect(lab.origin.paths().isEmpty)
        }
    }

    @Test(arguments: [
        "other bytes", "too long", "too short", "empty", "an error page", "206", "coded",
    ])
    func whatIsNotWhatItsNameSaysIsNeitherServedNorStored(what: String) async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        try await with(publisher) { lab, site in
            #expect(try await lab.get("/tiles/s/2/2/1").status == 200)
            let (tile, entries) = (object("sea"), try lab.store.statistics().entries)
            site.twist { request, answer in
                guard request.path == tile else { return }
                switch what {
                case "other bytes": answer.body = png("SEA")
                case "too long": answer.body += Data("!".utf8)
                case "too short": answer.body = answer.body.dropLast()
                case "empty": answer.body = Data()
                case "an error page":
                    answer = SiteAnswer(fields: [.contentType: "text/html"], body: Data("no".utf8))
                case "206":
                    answer.status = 206
                    answer.fields[.contentRange] = "bytes 0-10/11"
                default:
                    answer.fields[.contentEncoding] = "gzip"
                    answer.body = (try? Gzip.encode(answer.body)) ?? Data()
                }
            }
            #expect(try await lab.get("/tiles/s/2/0/1").status == 502)
            #expect(try lab.store.statistics().entries == entries)
            site.twist { _, _ in }
            lab.clock.advance(seconds: 600)
            #expect(try await lab.get("/tiles/s/2/0/1").body == png("sea"))
        }
    }

    /// Servers often say of files whose names end with `.gz` that they are coded: the bytes decide.
    @Test func aFalseContentCodingOfAListIsForgiven() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        try await with(publisher) { lab, site in
            site.twist { request, answer in
                if request.path?.hasSuffix(".gz") == true { answer.fields[.contentEncoding] = "x-gzip" }
            }
            let tile = try await lab.get("/tiles/s/2/0/1")
            #expect(tile.status == 200)
        }
    }

    @Test(arguments: ["set.json", "root", "chunk"], ["nothing", "garbage", "a bomb", "JSON", "too long"])
    func aHostileSetIsAnErrorAndLeavesNothing(which: String, what: String) async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        try await with(publisher) { lab, site in
            let root = publisher.versions[0].root
            site.twist { request, answer in
                guard let path = request.path else { return }
                let name: String =
                    path.hasSuffix("set.json")
                    ? "set.json" : path.contains(root) ? "root" : path.hasSuffix(".gz") ? "chunk" : "tile"
                guard name == which else { return }
                switch what {
                case "nothing": answer.body = Data()
                case "garbage": answer.body = Data((0..<200).map { UInt8($0) })
                case "a bomb": answer.body = (try? Gzip.encode(Data(count: 20 << 20))) ?? Data()
                case "JSON": answer.body = Data(#"{"chunks":[["\#(root)",1,1]]}"#.utf8)
                default: answer.body += Data(count: 2 << 20)
                }
            }
            for _ in 0..<3 {
                let status = try await lab.get("/tiles/s/2/0/1").status
                #expect(status == 502 || status == 504)
            }
            #expect(try await lab.get("/tiles/s.json").status == 200)
            let left = try keys(lab)
            #expect(left.count <= (which == "set.json" ? 0 : which == "root" ? 1 : 2), "\(left)")
            site.twist { _, _ in }
            lab.clock.advance(seconds: 600)
            #expect(try await lab.get("/tiles/s/2/0/1").status == 200)
        }
    }

    /// Its digest is right, so that reading it again would be all that comes of each request.
    @Test func aListThatMakesNoSenseIsNotStored() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea"])
        let nonsense = Array("[\(salt)".utf8)
        let root = nonsense.withUnsafeBytes { BlobDigest(hashing: $0) }
        let packed = try Gzip.encode(Data(nonsense))
        try await with(publisher) { lab, site in
            let latest = publisher.versions[0].root
            site.twist { request, answer in
                guard let path = request.path else { return }
                if path.hasSuffix("set.json") {
                    let text = String(decoding: answer.body, as: UTF8.self).replacing(latest, with: "\(root)")
                    let lengths = try? Regex("\"rootLength\":[0-9]+")
                    answer.body = Data(
                        (lengths.map { text.replacing($0, with: "\"rootLength\":\(nonsense.count)") } ?? text).utf8)
                } else if path.contains("\(root)") {
                    answer = SiteAnswer(body: packed)
                }
            }
            var statuses: [Int] = []
            for _ in 0..<5 { statuses.append(try await lab.get("/tiles/s/2/0/1").status) }
            #expect(statuses.allSatisfy { $0 == 502 || $0 == 504 }, "\(statuses)")
            #expect(try keys(lab).allSatisfy { $0.hasSuffix(".json") })
            #expect(lab.origin.paths().filter { $0.contains("\(root)") }.count == 1)
        }
    }

    @Test func whatMayNotBeStoredIsServedAllTheSame() async throws {
        let publisher = try PublisherInLab(salt: salt)
        try publisher.publish([0: "sea", 2: "land"])
        try await with(publisher, fields: [.cacheControl: "no-store"]) { lab, _ in
            for _ in 0..<3 { try await expect(lab, "s", [0: "sea", 2: "land"], "not stored") }
            #expect(try lab.store.statistics().entries == 0)
        }
    }

    /// Random renewals, outages and times between requests: a tile is that of a version that was the latest within ten seconds.
    @Test(arguments: Seeds.list(6))
    func whateverIsRenewedNoVersionIsMixedWithAnother(seed: UInt64) async throws {
        var random = SplitMix64(seed: seed)
        let publisher = try PublisherInLab(salt: salt)
        func tiles() -> [Int: String] {
            var tiles: [Int: String] = [Int.random(in: 0..<4, using: &random): "a\(random.below(3))"]
            for x in 0..<4 where random.oneIn(2) { tiles[x] = "a\(random.below(3))" }
            return tiles
        }
        try publisher.publish(tiles())
        let fields: HTTPFields = [.cacheControl: "max-age=\(random.below(100)), stale-if-error=100000"]
        try await with(publisher, fields: fields) { lab, site in
            /// Since when each version is in place.
            var since = [(lab.clock.now.seconds, publisher.versions[0].tiles)]
            var outage: Int64?
            for step in 0..<80 {
                switch random.below(5) {
                case 0:
                    try publisher.publish(tiles())
                    since.append((lab.clock.now.seconds, try #require(publisher.versions.last).tiles))
                case 1:
                    outage = outage == nil ? lab.clock.now.seconds : nil
                    site.isAway(outage != nil)
                    // An origin that was away is left alone for a while.
                    if outage == nil { lab.clock.advance(seconds: 3600) }
                default: lab.clock.advance(seconds: Int64(1 + random.below(8)))
                }
                let (x, now) = (random.below(4), lab.clock.now.seconds)
                let answer = try await lab.get("/tiles/s/2/\(x)/1")
                let possible = since.indices.filter { index in
                    let end = index + 1 < since.count ? since[index + 1].0 : .max
                    // Without its server what was known before stands in.
                    return outage != nil || end >= now - 10
                }
                switch answer.status {
                case 200:
                    let isRight = possible.contains { since[$0].1[x].map { png($0) } == answer.body }
                    #expect(isRight, "seed \(seed), step \(step), x \(x), \(now): \(since), \(answer.head)")
                case 404: #expect(possible.contains { since[$0].1[x] == nil }, "step \(step)")
                default:
                    // An origin that was away is left alone for a while.
                    #expect([502, 503, 504].contains(answer.status), "step \(step)")
                }
                let (root, old) = publisher.versions[random.below(publisher.versions.count)]
                let version = try await lab.get("/tiles/s@\(root.prefix(12))/2/\(x)/1")
                if version.status == 200 { #expect(old[x].map { png($0) } == version.body, "step \(step)") }
                if version.status == 404, !version.text.contains("version") { #expect(old[x] == nil, "step \(step)") }
            }
        }
    }
}
