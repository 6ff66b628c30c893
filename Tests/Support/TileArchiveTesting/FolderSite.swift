import Foundation
package import HTTPTypes
import TileArchive
import TileStore

/// A static server with a folder, which a test can have misbehave.
package final class FolderSite: Sendable {
    private struct State {
        var fields: HTTPFields
        var twist: @Sendable (HTTPRequest, inout SiteAnswer) -> Void = { _, _ in }
        var isAway = false
    }

    private let folder: String
    private let state: Locked<State>

    /// - Parameters:
    ///   - folder: Where the files are that it has below `/`.
    ///   - fields: What all its answers have.
    package init(_ folder: String, fields: HTTPFields = [.cacheControl: "max-age=60"]) {
        self.folder = folder
        state = Locked(State(fields: fields))
    }

    /// Changes answers from now on.
    package func twist(_ twist: @escaping @Sendable (HTTPRequest, inout SiteAnswer) -> Void) {
        state.withLock { $0.twist = twist }
    }

    /// Whether there is no server.
    package func isAway(_ isAway: Bool) { state.withLock { $0.isAway = isAway } }

    package func answer(_ request: HTTPRequest) throws -> SiteAnswer {
        let now = state.withLock { $0 }
        if now.isAway { throw ArchiveSite.Away() }
        let path = (request.path ?? "/").prefix { $0 != "?" }
        var answer = SiteAnswer(status: 404)
        let url = URL(fileURLWithPath: folder + path)
        if FileManager.default.fileExists(atPath: url.path) {
            answer = SiteAnswer(fields: now.fields, body: try Data(contentsOf: url))
            let tag = ArchivedTile.etag(of: answer.body.withUnsafeBytes { BlobDigest(hashing: $0) })
            answer.fields[.eTag] = tag
            if request.headerFields[.ifNoneMatch] == tag { (answer.status, answer.body) = (304, Data()) }
        }
        now.twist(request, &answer)
        return answer
    }
}
