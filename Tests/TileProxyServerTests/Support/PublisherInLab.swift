import Foundation
import HTTPTypes
import Testing
import TileArchive
import TileCache
import TileSets
import TileStore

@testable import TileProxyServer

/// A cache that is published into a folder, and the model of what it has.
final class PublisherInLab {
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent("sets-\(UUID())").path
    private let store: TileStore
    private var time: Int64 = 1_700_000_000
    /// What each version has, the latest last; by x of zoom 2, row 1.
    private(set) var versions: [(root: String, tiles: [Int: String])] = []

    /// Behind each text, so that no other test's lists are the same: they are kept in one place for the whole process.
    private let salt: String

    init(salt: String = "") throws {
        self.salt = salt
        try FileManager.default.createDirectory(atPath: folder + "/set", withIntermediateDirectories: true)
        store = try TileStore(at: folder + "/cache")
    }

    deinit {
        do { try FileManager.default.removeItem(atPath: folder) } catch {
            print("left behind: \(folder): \(error)")
        }
    }

    var path: String { folder + "/set/set.json" }

    func publish(_ tiles: [Int: String]) throws {
        time += 10
        for x in 0..<4 {
            let key = try TileKey(source: "s", z: 2, x: x, y: 1)
            guard let text = tiles[x] else {
                _ = try store.remove([key])
                continue
            }
            let now = Timestamp(seconds: time)
            try store.put(
                TileLab.png(text + salt), for: key,
                metadata: TileMetadata(
                    response: ResponseFields(mediaType: "image/png"), storedAt: now, expires: now))
        }
        let source = try SourceName("s")
        var publisher = SetPublisher(
            CacheTiles(store, folder: "", source: source), source: source, now: Timestamp(seconds: time))
        publisher.copier = nil
        let report = try publisher.publish(into: DiskFileSystem(location: folder + "/set"))
        versions.removeAll { $0.root == "\(report.root!)" }
        versions.append(("\(report.root!)", tiles))
    }
}

/// A static server with a folder, which a test can have misbehave.
final class FolderSite: Sendable {
    private struct State {
        var fields: HTTPFields
        var twist: @Sendable (HTTPRequest, inout TileLab.Answer) -> Void = { _, _ in }
        var isAway = false
    }

    private let folder: String
    private let state: Locked<State>

    /// - Parameters:
    ///   - folder: Where the files are that it has below `/`.
    ///   - fields: What all its answers have.
    init(_ folder: String, fields: HTTPFields = [.cacheControl: "max-age=60"]) {
        self.folder = folder
        state = Locked(State(fields: fields))
    }

    /// Changes answers from now on.
    func twist(_ twist: @escaping @Sendable (HTTPRequest, inout TileLab.Answer) -> Void) {
        state.withLock { $0.twist = twist }
    }

    /// Whether there is no server.
    func isAway(_ isAway: Bool) { state.withLock { $0.isAway = isAway } }

    func answer(_ request: HTTPRequest) throws -> TileLab.Answer {
        let now = state.withLock { $0 }
        if now.isAway { throw ArchiveSite.Away() }
        let path = (request.path ?? "/").prefix { $0 != "?" }
        var answer = TileLab.Answer(status: 404)
        let url = URL(fileURLWithPath: folder + path)
        if FileManager.default.fileExists(atPath: url.path) {
            answer = TileLab.Answer(fields: now.fields, body: try Data(contentsOf: url))
            let tag = answer.body.withUnsafeBytes { BlobDigest(hashing: $0).entityTag }
            answer.fields[.eTag] = tag
            if request.headerFields[.ifNoneMatch] == tag { (answer.status, answer.body) = (304, Data()) }
        }
        now.twist(request, &answer)
        return answer
    }
}

extension TileLab.Origin {
    /// The paths that were asked for, and forgets them.
    func paths() -> [String] {
        asked.withLock { asked in
            defer { asked = [] }
            return asked.map { $0.path ?? "" }
        }
    }
}

extension TileLab {
    /// Expects the tiles of zoom 2, row 1, by their columns, and no others there.
    func expect(_ name: String, _ tiles: [Int: String], _ note: String) async throws {
        for x in 0..<4 {
            let answer = try await get("/tiles/\(name)/2/\(x)/1")
            #expect(answer.status == (tiles[x] == nil ? 404 : 200), "\(note): \(x)")
            if let text = tiles[x] { #expect(answer.body == TileLab.png(text), "\(note): \(x)") }
        }
    }
}
