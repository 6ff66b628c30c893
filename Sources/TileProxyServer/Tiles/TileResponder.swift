import CacheEngine
import HTTPCaching
package import HTTPListener
import HTTPTypes
import HTTPWire
import Logging
package import NIOCore
import SharedTier
import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Answers `/tiles/` on one event loop: hits at once, everything else through the cache and back.
package final class TileResponder {
    private let service: TileService
    private let store: TileStore
    private let loop: any EventLoop
    private let time: LoopTime
    private let tiles: TileLoop
    // Used on the event loop only, and never re-entered while they change: no run-time exclusivity checks.
    @exclusivity(unchecked) private var table: SourceTable
    @exclusivity(unchecked) private var stripes: [Statistics.Stripe]
    private let ready: ReadyAnswers
    /// A key of each source and scale, from which those of all its tiles are made; `nil` until there is one.
    @exclusivity(unchecked) private var keys: [KnownKey?]

    package init(_ service: TileService, loop: any EventLoop, time: LoopTime, ready: ReadyAnswers) {
        self.service = service
        self.loop = loop
        self.time = time
        tiles = TileLoop(service, loop: loop, time: time)
        store = service.store
        table = service.table
        stripes = table.sources.map { service.statistics.stripe(for: $0.name, on: loop) }
        self.ready = ready
        keys = Array(repeating: nil, count: table.sources.count * Self.scales)
    }

    /// Takes over sources that have changed.
    package func adopt(_ table: SourceTable) {
        self.table = table
        tiles.adopt(table)
        stripes = table.sources.map { service.statistics.stripe(for: $0.name, on: loop) }
        keys = Array(repeating: nil, count: table.sources.count * Self.scales)
        ready.dropTiles()
    }

    /// Scales are 1 to 8.
    private static let scales = 9

    /// Whether a request is for the tile routes; without sources there are none, and `/tiles/` may be an upstream's.
    package func owns(_ head: RequestHead) -> Bool {
        !table.sources.isEmpty && head.withPathBytes(TileTarget.owns)
    }

    /// A tile of a source that it has.
    private struct Found {
        var source: ServedSource
        var path: TilePath
        /// The version of a set at a server, if it is not to be the latest one.
        var version: String?
        /// The scale that is in its key.
        var scale: Int { source.usesScale ? path.scale : 1 }
        /// Where ``TileResponder/keys`` has a key of this source and scale.
        var place: Int { source.index &* TileResponder.scales &+ scale }
    }

    private enum Lookup {
        case tile(Found)
        case description(NamedSource)
        /// The source, if there is one, and why not.
        case refused(ServedSource?, String)
    }

    @inline(__always)
    private func look(_ path: UnsafeRawBufferPointer) -> Lookup {
        switch TileTarget(path) {
        case .nothing: return .refused(nil, "Tiles are at /tiles/NAME/{z}/{x}/{y}.")
        case .description(let name):
            let name = path.part(name.lowerBound, name.upperBound)
            guard let named = table.source(named: name) else { return .refused(nil, table.refusal(of: name)) }
            return .description(named)
        case .tile(let tile):
            let name = path.part(tile.source.lowerBound, tile.source.upperBound)
            guard let named = table.source(named: name) else { return .refused(nil, table.refusal(of: name)) }
            let source = named.source
            guard source.covers(z: tile.z, x: tile.x, y: tile.y) else {
                return .refused(source, "The source has no tiles there.")
            }
            if let format = tile.format, !source.takes(format: path.part(format.lowerBound, format.upperBound)) {
                return .refused(source, "The source has no tiles of this format.")
            }
            return .tile(Found(source: source, path: tile, version: named.version))
        }
    }

    // MARK: At once

    package func answer(
        _ request: RequestHead, _ answering: borrowing Answering, into buffer: inout ByteBuffer
    ) -> Answered? {
        guard case .tile(let found) = request.withPathBytes(look), let sibling = keys[found.place],
            !found.source.overzooms(found.path.z)
        else { return nil }
        let key = sibling.tile(z: found.path.z, x: found.path.x, y: found.path.y)
        let answered =
            if let shared = service.shared {
                ready.answer(request, answering, key, of: found.source, into: &buffer) { storedAt in
                    let path = found.path
                    let since = shared.staleSince(
                        found.source.name, z: path.z, x: path.x, y: path.y, storedAt: storedAt)
                    return since != nil
                }
            } else { ready.answer(request, answering, key, of: found.source, into: &buffer) }
        guard let answered else { return nil }
        stripes[found.source.index].add(answered.cache, status: answered.status, bytes: answered.bodyBytes)
        return answered
    }

    // MARK: In its own time

    package func respond(_ exchange: Exchange) {
        let head = exchange.head
        let lookup = head.withPathBytes(look)
        let source: ServedSource?
        switch lookup {
        case .tile(let found): source = found.source
        case .description(let described): source = described.source
        case .refused(let refused, _): source = refused
        }
        switch head.method {
        case .get, .head: break
        case .options:
            preflight(exchange, source)
            return
        case .other:
            let fields: HTTPFields = [.allow: "GET, HEAD, OPTIONS"]
            exchange.reply(405, "Tiles can only be read.", fields: fields)
            return
        }
        switch lookup {
        case .refused(let source, let why):
            let origin = source.map(\.allowedOrigin) ?? "*"
            // It may be there after the next change of the configuration.
            send(TileReply(404, why, allowedOrigin: origin, cacheStatus: nil, keepFor: 60), nil, .none, exchange)
            if let source { stripes[source.index].add(.none, status: 404, bytes: 0) }
        case .description(let named): describe(named, exchange)
        case .tile(let found): tile(found, TileRequest(head), exchange)
        }
    }

    /// Answers the question of a browser whether another site's script may ask (the Fetch standard, CORS preflight).
    private func preflight(_ exchange: Exchange, _ source: ServedSource?) {
        var fields: HTTPFields = [.allow: "GET, HEAD, OPTIONS"]
        if let origin = source?.allowedOrigin {
            fields[.accessControlAllowOrigin] = origin
            fields[.accessControlAllowMethods] = "GET, HEAD"
            fields[.accessControlAllowHeaders] = "Range, If-None-Match, If-Modified-Since"
            fields[.accessControlMaxAge] = "86400"
        }
        exchange.reply(HTTPResponse(status: .noContent, headerFields: fields))
    }

    private func describe(_ named: NamedSource, _ exchange: Exchange) {
        let source = named.source
        guard let remote = source.remote else {
            return describe(source, source.configuration, source.description, source.version, isWhole: true, exchange)
        }
        let (me, asked) = (NIOLoopBound(self, eventLoop: loop), NIOLoopBound(exchange, eventLoop: loop))
        remote.describe(version: named.version, of: source, on: tiles) { said in
            // Who has left is told nothing.
            guard asked.value.isOpen else { return }
            switch said {
            case .said(let configuration, let map, let version, let isWhole):
                me.value.describe(source, configuration, map, version, isWhole: isWhole, asked.value)
            // Without its server there is what the operator says.
            case .unknown:
                me.value.describe(source, source.configuration, source.description, nil, isWhole: false, asked.value)
            case .unknownVersion:
                let refusal = Refusal.unreadableSet
                let reply = TileReply(
                    refusal.status, refusal.words, allowedOrigin: source.allowedOrigin, cacheStatus: nil)
                me.value.send(reply, source, .none, asked.value)
            case .noVersion:
                let reply = TileReply(
                    404, SourceTable.noSuchVersion, allowedOrigin: source.allowedOrigin, cacheStatus: nil)
                me.value.send(reply, source, .none, asked.value)
            }
        }
    }

    private func describe(
        _ source: ServedSource, _ configuration: SourceConfiguration, _ map: MapDescription,
        _ version: SourceVersion?, isWhole: Bool, _ exchange: Exchange
    ) {
        let head = exchange.head
        let base = table.publicURL ?? head.host.map { "\(head.scheme)://\($0)" } ?? ""
        let json = TileJSON(
            configuration, format: source.formats.first ?? map.format.map { Array($0.utf8) }, base: base,
            routeName: version.map { "\(source.name)@\($0.identifier)" }, map
        ).text
        var fields: HTTPFields = [.contentType: "application/json"]
        // What is less than all is asked for again.
        fields[.cacheControl] = isWhole ? "public, max-age=60" : "no-store"
        fields[.accessControlAllowOrigin] = source.allowedOrigin
        exchange.reply(HTTPResponse(status: .ok, headerFields: fields), body: ByteBuffer(string: json))
    }

    private func tile(_ found: Found, _ request: TileRequest, _ exchange: Exchange) {
        let source = found.source
        let key: TileKey
        do {
            key = try source.tiles.key(
                z: found.path.z, x: found.path.x, y: found.path.y, scale: found.path.scale)
        } catch {
            send(TileReply(404, "No such tile.", allowedOrigin: "*", cacheStatus: nil), source, .none, exchange)
            return
        }
        // Files and archives of this machine are never stored, and what is made from others is looked up by its ancestor.
        guard !source.isLocal else { return make(key, nil, source, request, exchange) }
        // How fresh a tile of an archive at a server is, its own entry does not say.
        if source.remote == nil { keys[found.place] = store.known(key) }
        guard !source.overzooms(found.path.z) else { return make(key, found.version, source, request, exchange) }
        let asking = tiles.question(source, key, version: found.version, onlyIfCached: request.onlyIfCached) {
            [weak self] outcome in
            exchange.whenGone = nil
            self?.reply(outcome, source, request, exchange)
        }
        exchange.whenGone = { asking.leave() }
        asking.start()
    }

    private func reply(
        _ outcome: TileExchange.Outcome, _ source: ServedSource, _ request: TileRequest, _ exchange: Exchange
    ) {
        switch outcome {
        case .tile(let candidate, let status, let from, let isKept):
            reply(ServedTile(candidate, status, from, isKept: isKept), source, request, exchange)
        case .refused(let refusal, let status, _):
            send(TileReply(refusal, status, of: source), source, .miss, exchange)
        }
    }

    /// Sends a tile, decoded for a client that does not take gzip.
    private func reply(_ tile: ServedTile, _ source: ServedSource, _ request: TileRequest, _ exchange: Exchange) {
        // What is sent from its file is not looked at, unless that is the only way to know what it is.
        if case .file = tile.body, !tile.isKnown(of: source) || tile.needsDecoding(for: request, of: source) {
            return readWhole(tile, source, request, exchange)
        }
        guard let data = tile.data, tile.needsDecoding(for: request, of: source) else {
            return send(tile, source, request, exchange)
        }
        let digest = tile.blob ?? data.withUnsafeBytes { BlobDigest(hashing: $0) }
        let (me, loop) = (NIOLoopBound(self, eventLoop: loop), loop)
        service.decoder.decode(data, digest) { outcome in
            loop.execute {
                var tile = tile
                switch outcome {
                case .decoded(let decoded): tile.decoded = decoded
                case .undecodable: break
                case .busy:
                    var busy = Refusal(
                        status: 503, words: "Too many tiles are being decoded; ask again, or accept gzip.")
                    busy.retryAfter = 1
                    return me.value.send(TileReply(busy, tile.status, of: source), source, .miss, exchange)
                }
                me.value.send(tile, source, request, exchange)
            }
        }
    }

    private func readWhole(
        _ tile: ServedTile, _ source: ServedSource, _ request: TileRequest, _ exchange: Exchange
    ) {
        let me = NIOLoopBound(self, eventLoop: loop)
        let service = service
        service.worker.read(on: loop) { _ in
            try tile.body.data()
        } then: { result in
            switch result {
            case .success(let data):
                var tile = tile
                tile.body = .none
                if let data {
                    // In memory for as long as this client reads it.
                    guard let owner = HeldBody(data, within: service.budget) else {
                        return me.value.send(TileReply(.noRoom, tile.status, of: source), source, .miss, exchange)
                    }
                    (tile.body, tile.owner) = (.memory(data), owner)
                }
                me.value.reply(tile, source, request, exchange)
            case .failure(let error):
                service.failures.report(.error, "a stored tile cannot be read", ["error": "\(error)"])
                let refusal = Refusal(status: 500, words: "The cache failed; see the log.")
                me.value.send(TileReply(refusal, tile.status, of: source), source, .miss, exchange)
            }
        }
    }

    private func send(_ tile: ServedTile, _ source: ServedSource, _ request: TileRequest, _ exchange: Exchange) {
        let reply = TileReply(tile, of: source, to: request, now: time.now, boundary: Self.boundary())
        send(reply, source, reply.result, exchange)
    }

    /// A random text that parts several ranges.
    private static func boundary() -> String { String(UInt64.random(in: 0...UInt64.max), radix: 36) }

    /// Answers with a tile of this machine, or with one that is made from another.
    private func make(
        _ key: TileKey, _ version: String?, _ source: ServedSource, _ request: TileRequest, _ exchange: Exchange
    ) {
        let (me, bound, loop) = (NIOLoopBound(self, eventLoop: loop), NIOLoopBound(tiles, eventLoop: loop), loop)
        let now = time.now
        let making = TileMaking(
            tiles: bound, service: service, source: source, version: version, key: key, request: request)
        let task = Task {
            let made = await making.run(now)
            loop.execute {
                // Who has left is told nothing, and counts for nothing.
                guard exchange.isOpen else { return }
                exchange.whenGone = nil
                switch made {
                case .tile(let tile): me.value.reply(tile, source, request, exchange)
                case .refused(let refusal, let status, let result):
                    me.value.send(TileReply(refusal, status, of: source), source, result, exchange)
                }
            }
        }
        exchange.whenGone = { task.cancel() }
    }

    private func send(
        _ reply: TileReply, _ source: ServedSource?, _ result: Answered.CacheResult, _ exchange: Exchange
    ) {
        exchange.cacheResult = result
        let isHead = exchange.head.method == .head
        let size = isHead ? 0 : Int(clamping: reply.length ?? 0)
        // First: whoever has the answer finds it counted.
        if let source {
            // After a reload another source may be in its place.
            let isCurrent = source.index < table.sources.count && table.sources[source.index] === source
            let stripe = isCurrent ? stripes[source.index] : service.statistics.stripe(for: source.name, on: loop)
            stripe.add(result, status: reply.response.status.code, bytes: size)
        }
        exchange.send(reply.response, length: reply.length)
        if isHead {
            exchange.finish()
        } else if size <= Candidate.wholeUpTo, let body = reply.wholeBody(size) {
            exchange.send(body)
            exchange.finish()
        } else {
            let failures = service.failures
            BodySender(
                exchange, reply.body, reply.parts, suffix: reply.suffix, owner: reply.owner,
                onFailure: { failures.report(.error, "a stored tile cannot be read", ["error": "\($0)"]) }
            ).run()
        }
    }
}

extension TileReply {
    /// All of the body in one buffer; `nil` if it is in a file.
    fileprivate func wholeBody(_ size: Int) -> ByteBuffer? {
        var buffer = ByteBuffer()
        buffer.reserveCapacity(size)
        for part in parts {
            buffer.writeString(part.prefix)
            guard case .memory(let data) = body, part.bytes.upperBound <= Int64(data.count) else { return nil }
            let range = Int(clamping: part.bytes.lowerBound)..<Int(clamping: part.bytes.upperBound)
            data.withUnsafeBytes { _ = buffer.writeBytes(UnsafeRawBufferPointer(rebasing: $0[range])) }
        }
        buffer.writeString(suffix)
        return buffer
    }
}
