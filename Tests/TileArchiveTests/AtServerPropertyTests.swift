import Foundation
import HTTPTypes
import Testing
import TileArchive
import TileArchiveTesting
import TileCacheArchive
import TileStore
import TileStoreTesting

@testable import TileCache

/// Whatever becomes of a file at a server, its cache and its network: each tile is that of a version, and none is older than one before.
@Suite("Files at a server, whatever happens", .timeLimit(.minutes(60)))
struct AtServerPropertyTests {
    /// A file or a set at a server, whose tiles of zoom 2, row 1, say which version they are of; some are missing in some versions.
    private protocol Place: AnyObject {
        var lab: ServerLab { get }
        var latest: Int { get }
        /// So long after it was replaced nobody may be shown the former one.
        var patience: Int64 { get }
        func source() throws -> TileSource
        func publish() throws
        func goAway(_ isAway: Bool)
        /// What a version has there.
        func data(_ version: Int, _ x: Int) -> Data?
    }

    private final class Archive: Place {
        let lab: ServerLab
        private let site: ArchiveSite
        private(set) var latest = 0
        let patience: Int64 = 60
        private let hasTags: Bool

        init(hasTags: Bool) throws {
            let site = ArchiveSite(Data())
            (self.site, self.hasTags) = (site, hasTags)
            lab = try ServerLab { try site.answer($0) }
            try publish()
        }

        func source() throws -> TileSource { try TileSource("w", archiveAt: "https://files.example/w.pmtiles") }

        func publish() throws {
            latest += 1
            var tiles: [UInt64: Data] = [:]
            for x in 0..<4 { tiles[TileID.number(z: 2, x: x, y: 1)] = data(latest, x) }
            // Equal lengths, so that nothing but its validators tells a version.
            site.become(
                try TestArchive.bytes(tiles, leafOf: 2), tag: hasTags ? "\"\(latest)\"" : nil,
                modified: HTTPDateText.of(1_600_000_000 + latest))
        }

        func goAway(_ isAway: Bool) { site.isAway(isAway) }

        func data(_ version: Int, _ x: Int) -> Data? {
            (version + x) % 4 == 0 ? nil : TestPicture.png("v\(version % 10) \(x)")
        }
    }

    private final class PublishedSet: Place {
        let lab: ServerLab
        private let publisher: PublisherInLab
        private let site: FolderSite
        private let salt: String
        private(set) var latest = 0
        let patience: Int64 = 9

        init() throws {
            salt = " \(UUID())"
            publisher = try PublisherInLab(salt: salt)
            let site = FolderSite(publisher.folder)
            self.site = site
            lab = try ServerLab { try site.answer($0) }
            try publish()
        }

        func source() throws -> TileSource { try TileSource("s", archiveAt: "https://files.example/set/set.json") }

        func publish() throws {
            latest += 1
            var tiles: [Int: String] = [:]
            for x in 0..<4 { tiles[x] = text(latest, x) }
            try publisher.publish(tiles)
        }

        func goAway(_ isAway: Bool) { site.isAway(isAway) }

        private func text(_ version: Int, _ x: Int) -> String? { (version + x) % 4 == 0 ? nil : "v\(version) \(x)" }
        func data(_ version: Int, _ x: Int) -> Data? { text(version, x).map { TestPicture.png($0 + salt) } }
    }

    @Test(arguments: Seeds.list(60))
    func aTileIsOfOneVersionAndNeverOfAnOlderOneThanBefore(seed: UInt64) async throws {
        var random = SplitMix64(seed: seed)
        let place: any Place =
            switch seed % 3 {
            case 0: try PublishedSet()
            case 1: try Archive(hasTags: true)
            default: try Archive(hasTags: false)
            }
        var source = try place.source()
        let lab = place.lab
        var (shown, isAway) = (0, false)
        var publishedAt = lab.clock.now
        var history: [String] = []
        for _ in 0..<80 {
            switch random.below(12) {
            case 0:
                history.append("publish")
                try place.publish()
                publishedAt = lab.clock.now
            case 1:
                isAway.toggle()
                history.append(isAway ? "away" : "back")
                place.goAway(isAway)
                if !isAway { lab.cache.forgetFailures() }
            case 2:
                let seconds = Int64(random.pick([1, 5, 9, 30, 61, 4000]))
                history.append("+\(seconds)")
                lab.clock.advance(seconds: seconds)
            case 3:
                history.append("reopen")
                try lab.reopen()
                source = try place.source()
            case 4:
                let keys = try lab.keys()
                guard !keys.isEmpty else { continue }
                let key = random.pick(keys)
                history.append("lose \(key.suffix(12))")
                _ = try lab.cache.store.remove([TileKey(key)])
            default:
                let (x, mode) = (random.below(4), random.pick(LoadMode.allCases + [.standard, .standard, .standard]))
                history.append("\(mode) \(x)")
                let tile: CachedTile?
                do { tile = try await lab.tile(source, x, mode) } catch {
                    history.append("failed")
                    #expect(isAway, "it failed though there is a server: \(error) \(history)")
                    continue
                }
                guard let tile else {
                    #expect(mode == .cacheOnly)
                    continue
                }
                let versions = (1...place.latest).filter { place.data($0, x) == tile.data }
                guard let version = versions.last else {
                    Issue.record("a tile of no version: \(history)")
                    return
                }
                history.append("got \(version)")
                guard mode == .standard || mode == .serverThenCache, !isAway else { continue }
                #expect(version >= shown, "\(history)")
                if lab.clock.now.seconds - publishedAt.seconds > place.patience || mode == .serverThenCache {
                    #expect(versions.contains(place.latest), "\(history)")
                }
                // Where several versions have the same there, the oldest is what is known to have been shown.
                shown = max(shown, versions.first ?? 0)
            }
        }
    }
}

/// A date as fields have it.
private enum HTTPDateText {
    static func of(_ seconds: Int) -> String {
        let format = DateFormatter()
        format.locale = Locale(identifier: "en_US_POSIX")
        format.timeZone = TimeZone(identifier: "GMT")
        format.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
        return format.string(from: Date(timeIntervalSince1970: TimeInterval(seconds)))
    }
}
