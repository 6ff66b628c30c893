package import HTTPListener
import HTTPTypes
package import NIOCore

/// Takes each request of one event loop to who answers it: tiles, page and figures, or a generic route.
package final class ProxyResponder: Responder {
    private let tiles: TileResponder
    private let admin: AdminResponder
    private let generic: GenericProxy?

    package init(tiles: TileResponder, admin: AdminResponder, generic: GenericProxy?) {
        self.tiles = tiles
        self.admin = admin
        self.generic = generic
    }

    /// Takes over sources that have changed.
    package func adopt(_ table: SourceTable) { tiles.adopt(table) }

    /// Gives up what is being asked for on generic routes, as the proxy goes down.
    func giveUpFills() { generic?.giveUpFills() }

    package func answer(
        _ request: RequestHead, _ answering: borrowing Answering, into buffer: inout ByteBuffer
    ) -> Answered? {
        if tiles.owns(request) { return tiles.answer(request, answering, into: &buffer) }
        // The operator's own routes come before any prefix.
        if Self.isAdmin(request) { return nil }
        return generic?.answer(request, answering, into: &buffer)
    }

    package func respond(_ exchange: Exchange) {
        if tiles.owns(exchange.head) {
            tiles.respond(exchange)
        } else if admin.owns(exchange.head.path) {
            admin.respond(exchange)
        } else if let generic {
            generic.respond(exchange)
        } else {
            exchange.reply(404, "There is nothing here.")
        }
    }

    /// Whether a path is below `/_tileproxy`.
    private static func isAdmin(_ request: RequestHead) -> Bool {
        request.withPathBytes { $0.begins(with: "/_tileproxy") && ($0.count == 11 || $0[11] == UInt8(ascii: "/")) }
    }

    /// Whether a request is for a generic route, by its path alone.
    package static func isGeneric(_ request: RequestHead, hasSources: Bool, ownsRoot: Bool) -> Bool {
        let isTile = hasSources && request.withPathBytes(TileTarget.owns)
        let isRoot = request.withPathBytes { $0.isEmpty || $0.count == 1 && $0[0] == 47 }
        return !isTile && !isAdmin(request) && !(ownsRoot && isRoot)
    }
}
