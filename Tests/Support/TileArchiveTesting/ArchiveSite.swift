package import Foundation
package import HTTPTypes
import TileStore

/// A static server with one file, as RFC 9110 describes it, which a test can replace and have misbehave.
package final class ArchiveSite: Sendable {
    private struct State {
        var file = Data()
        var fields: HTTPFields = [:]
        var twist: @Sendable (HTTPRequest, inout SiteAnswer) -> Void = { _, _ in }
        var isAway = false
    }

    private let state = Locked(State())

    package init(_ file: Data, tag: String? = "\"1\"", modified: String? = "Mon, 23 Nov 2026 10:00:00 GMT") {
        become(file, tag: tag, modified: modified)
    }

    /// Replaces the file.
    package func become(_ file: Data, tag: String?, modified: String? = "Mon, 23 Nov 2026 10:00:00 GMT") {
        var fields: HTTPFields = [.cacheControl: "max-age=60", .contentType: "application/octet-stream"]
        (fields[.eTag], fields[.lastModified]) = (tag, modified)
        state.withLock { ($0.file, $0.fields) = (file, fields) }
    }

    /// Changes answers from now on.
    package func twist(_ twist: @escaping @Sendable (HTTPRequest, inout SiteAnswer) -> Void) {
        state.withLock { $0.twist = twist }
    }

    /// Whether there is no server.
    package func isAway(_ isAway: Bool) { state.withLock { $0.isAway = isAway } }

    package func answer(_ request: HTTPRequest) throws -> SiteAnswer {
        let now = state.withLock { $0 }
        if now.isAway { throw Away() }
        var answer = SiteAnswer(fields: now.fields, body: now.file)
        let (asked, tag) = (request.headerFields, now.fields[.eTag])
        if let wanted = asked[.ifMatch], wanted != tag {
            answer = SiteAnswer(status: 412)
        } else if let wanted = asked[.ifUnmodifiedSince], wanted != now.fields[.lastModified] {
            answer = SiteAnswer(status: 412)
        } else if let known = asked[.ifNoneMatch], known == tag {
            (answer.status, answer.body) = (304, Data())
        } else if asked[.ifNoneMatch] == nil, let known = asked[.ifModifiedSince], known == now.fields[.lastModified] {
            (answer.status, answer.body) = (304, Data())
        } else if let range = asked[.range] {
            let ends = range.dropFirst(6).split(separator: "-").compactMap { Int($0) }
            if ends.count == 2, ends[0] < now.file.count {
                let last = min(ends[1], now.file.count - 1)
                answer.status = 206
                answer.body = now.file.subdata(in: ends[0]..<(last + 1))
                answer.fields[.contentRange] = "bytes \(ends[0])-\(last)/\(now.file.count)"
            } else {
                answer = SiteAnswer(status: 416, fields: [.contentRange: "bytes */\(now.file.count)"])
            }
        }
        now.twist(request, &answer)
        return answer
    }

    /// There is no server.
    package struct Away: Error {}
}
