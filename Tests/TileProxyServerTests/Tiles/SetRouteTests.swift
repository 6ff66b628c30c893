import Foundation
import HTTPTypes
import Testing
import TileArchive
import TileArchiveTesting
import TileCache
import TileSets
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// Published sets and watched archives as sources of the proxy, asked over a socket.
@Suite("Sets and watched files as sources", .timeLimit(.minutes(60)))
struct SetRouteTests {
    /// Looks at the files once, and takes over what has changed.
    private func look(_ watch: WatchInLab, _ lab: TileLab) async throws {
        watch.watch.look()
        if let table = watch.next.withLock({ next in
            defer { next = nil }
            return next
        }) {
            try await lab.adopt(table)
        }
    }

    private final class WatchInLab: Sendable {
        let watch: SourceWatch
        let next: Locked<SourceTable?>
        let reports: Locked<[String]>

        init(_ lab: TileLab) {
            let (next, reports) = (Locked<SourceTable?>(nil), Locked<[String]>([]))
            (self.next, self.reports) = (next, reports)
            watch = SourceWatch(
                { lab.service.table },
                replace: { source in
                    let table = lab.service.table.replacing(try source.reopened())
                    next.withLock { $0 = table }
                    return true
                }, report: { source, reason in reports.withLock { $0.append("\(source): \(reason)") } })
        }
    }

    @Test func tilesComeFromTheSetAndItsVersionsNeverChange() async throws {
        let publisher = try PublisherInLab()
        try publisher.publish([0: "sea", 1: "sea", 2: "land"])
        try await TileLab.with("s=" + publisher.path) { lab in
            let watch = WatchInLab(lab)
            try await lab.expect("s", [0: "sea", 1: "sea", 2: "land"], "the first version")
            let first = try await lab.get("/tiles/s/2/0/1.png")
            #expect(first[.cacheControl] == "public, max-age=60" && first[.contentType] == "image/png")
            let tag = try #require(first[.eTag])
            try publisher.publish([0: "sea", 1: "city", 3: "ice"])
            try await lab.expect("s", [0: "sea", 1: "sea", 2: "land"], "before it is taken up")
            try await look(watch, lab)
            try await lab.expect("s", [0: "sea", 1: "city", 3: "ice"], "the second version")
            // What has not changed is not sent again.
            #expect(try await lab.get("/tiles/s/2/0/1.png", [.ifNoneMatch: tag]).status == 304)

            let roots = publisher.versions.map(\.root)
            for (root, tiles) in publisher.versions {
                for digits in [8, 16, 64] {
                    let name = "s@" + root.prefix(digits)
                    try await lab.expect(name, tiles, "version \(root.prefix(8))")
                    let answer = try await lab.get("/tiles/\(name)/2/0/1.png")
                    #expect(answer[.cacheControl] == "public, max-age=31536000, immutable")
                    #expect(try await lab.get("/tiles/\(name)/2/0/1.png", [.ifNoneMatch: tag]).status == 304)
                }
                let text = try await lab.get("/tiles/s@\(root.prefix(8)).json").text
                #expect(text.contains("/tiles/s@\(root.prefix(16))/{z}/{x}/{y}.png"))
            }
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
            #expect(try await lab.get("/tiles/s.json").text.contains("/tiles/s/{z}/{x}/{y}.png"))
            let stats = try await lab.get("/_tileproxy/stats.json").text
            for root in roots { #expect(stats.contains("\"id\":\"\(root.prefix(16))\"")) }
            #expect(try lab.store.statistics().entries == 0)
            #expect(watch.reports.withLock { $0 }.isEmpty)
        }
    }

    /// Random renewals, damage and repairs between requests: a tile is that of the version that is in place, or an error.
    @Test(arguments: Seeds.list(4))
    func whateverIsRenewedNoVersionIsMixedWithAnother(seed: UInt64) async throws {
        var random = SplitMix64(seed: seed)
        let publisher = try PublisherInLab()
        func tiles() -> [Int: String] {
            var tiles: [Int: String] = [Int.random(in: 0..<4, using: &random): "a\(random.below(3))"]
            for x in 0..<4 where random.oneIn(2) { tiles[x] = "a\(random.below(3))" }
            return tiles
        }
        try publisher.publish(tiles())
        try await TileLab.with("s=" + publisher.path) { lab in
            let watch = WatchInLab(lab)
            var served = publisher.versions[0].tiles
            for step in 0..<60 {
                switch random.below(4) {
                case 0: try publisher.publish(tiles())
                case 1:
                    // Something that is no set is in its place for a while.
                    let whole = try Data(contentsOf: URL(fileURLWithPath: publisher.path))
                    try Data("{}".utf8).write(to: URL(fileURLWithPath: publisher.path), options: .atomic)
                    try await look(watch, lab)
                    try await lab.expect("s", served, "step \(step): with a wrong set.json")
                    try whole.write(to: URL(fileURLWithPath: publisher.path), options: .atomic)
                default:
                    try await look(watch, lab)
                    served = try #require(publisher.versions.last).tiles
                }
                try await lab.expect("s", served, "step \(step)")
                let (root, old) = publisher.versions[random.below(publisher.versions.count)]
                let isKnown = lab.service.table.sources[0].versions.contains {
                    $0.version.map { "\($0.root)" } == root
                }
                if isKnown { try await lab.expect("s@\(root.prefix(12))", old, "step \(step): \(root.prefix(8))") }
            }
        }
    }

    @Test func anObjectThatIsLostOrDamagedIsAnErrorUntilItIsBack() async throws {
        let publisher = try PublisherInLab()
        try publisher.publish([0: "sea", 2: "land"])
        try await TileLab.with("s=" + publisher.path) { lab in
            let digest = TileLab.png("sea").withUnsafeBytes { BlobDigest(hashing: $0) }
            let object = URL(fileURLWithPath: publisher.folder + "/set/" + SetPaths.blob(digest))
            for harm in [nil, Data(), TileLab.png("ice"), TileLab.png("sea!")] {
                try FileManager.default.removeItem(at: object)
                try harm?.write(to: object)
                for name in ["s", "s@" + publisher.versions[0].root.prefix(8)] {
                    let answer = try await lab.get("/tiles/\(name)/2/0/1")
                    #expect(answer.status == 500, "\(harm as Any)")
                    #expect(answer[.cacheControl]?.contains("immutable") != true)
                    #expect(try await lab.get("/tiles/\(name)/2/2/1").body == TileLab.png("land"))
                }
                if harm == nil { try Data().write(to: object) }
            }
            try FileManager.default.removeItem(at: object)
            try TileLab.png("sea").write(to: object)
            try await lab.expect("s", [0: "sea", 2: "land"], "when it is back")
        }
    }

    /// A link that leads to one set and then to another one.
    @Test func aSetBehindALinkIsTakenUpWhenTheLinkIsChanged() async throws {
        let (first, second) = (try PublisherInLab(), try PublisherInLab())
        try first.publish([0: "sea"])
        try second.publish([0: "land", 1: "ice"])
        let link = first.folder + "/now"
        #expect(symlink(first.folder + "/set", link) == 0)
        try await TileLab.with("s=" + link + "/set.json") { lab in
            let watch = WatchInLab(lab)
            #expect(symlink(second.folder + "/set", link + ".new") == 0 && rename(link + ".new", link) == 0)
            try await lab.expect("s", [0: "sea"], "before it is taken up")
            try await look(watch, lab)
            try await lab.expect("s", [0: "land", 1: "ice"], "afterwards")
        }
    }

    @Test(arguments: ["w.pmtiles", "w.mbtiles"], [true, false])
    func anArchiveThatIsReplacedIsReadAnewIfItIsWatched(name: String, isWatched: Bool) async throws {
        let publisher = try PublisherInLab()
        func archive(_ tiles: [Int: String]) throws {
            try publisher.publish(tiles)
            let store = try TileStore(at: publisher.folder + "/cache")
            let export = ArchiveExport(store: store, source: try SourceName("s"))
            let path = publisher.folder + "/new-" + name
            _ = try export.run(to: path, format: ArchiveFormat(path: path), observer: Silence())
            #expect(rename(path, publisher.folder + "/" + name) == 0)
        }
        let (first, second) = ([0: "sea", 1: "land"], [1: "city", 2: "ice"])
        try archive(first)
        let path = publisher.folder + "/" + name
        try await TileLab.with("s=" + path, { $0.isWatched = isWatched }) { lab in
            let watch = WatchInLab(lab)
            try await look(watch, lab)
            try await lab.expect("s", first, "at first")
            try archive(second)
            // One that is still being written is not opened: it has to be the same twice.
            try await look(watch, lab)
            try await lab.expect("s", first, "after one look")
            try await look(watch, lab)
            try await lab.expect("s", isWatched ? second : first, "after two looks")
            try Data("no archive".utf8).write(to: URL(fileURLWithPath: path), options: .atomic)
            for _ in 0..<3 { try await look(watch, lab) }
            try await lab.expect("s", isWatched ? second : first, "with something else in its place")
            try FileManager.default.removeItem(atPath: path)
            try await look(watch, lab)
            try await lab.expect("s", isWatched ? second : first, "when it is gone")
            #expect(watch.reports.withLock { $0.count } == (isWatched ? 3 : 0))
        }
    }

    private final class Silence: TransferObserver {
        func skipped(_ what: String, _ why: String, count: Int) {}
        func failed(_ what: String, _ why: String) {}
        func advanced(_ progress: @autoclosure () -> TransferProgress) {}
        var wantsStop: Bool { false }
    }
}
