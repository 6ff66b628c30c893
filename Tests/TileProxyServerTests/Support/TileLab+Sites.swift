import HTTPTypes
import Testing
import TileArchiveTesting
import TileCache
import TileStore

@testable import TileProxyServer

extension TileLab.Answer {
    /// What a server in memory answers.
    init(_ answer: SiteAnswer) { self.init(status: answer.status, fields: answer.fields, body: answer.body) }
}

extension TileLab.Origin {
    /// The ranges that were asked for, and forgets them.
    func ranges() -> [String] {
        asked.withLock { asked in
            defer { asked = [] }
            return asked.map { $0.headerFields[.range] ?? "all" }
        }
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
