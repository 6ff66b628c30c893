package import CacheEngine
package import HTTPCaching
public import HTTPTypes
public import TileStore

/// Where tiles come from: a name in the cache, a URL template, and the rules for what comes from there.
///
/// A value; make one and pass it with every call, or keep it. Its name is part of every key, so two sources with one
/// name share their tiles. What differs from request to request, such as tokens, device names and regional hosts, belongs
/// into ``prepare``, ``headers`` or the template's values: none of these is ever part of a key, a log line or a file.
public struct TileSource: Sendable {
    /// Changes a request before it is sent: other host, other query, more header fields.
    ///
    /// Called once for each request that is sent, never for a tile that the cache can serve. What it throws is the
    /// tile's error. It may take as long as ``timeout`` says, and is cancelled then; the request has as long again.
    public typealias RequestHook = @Sendable (_ request: inout HTTPRequest, _ key: TileKey) async throws -> Void

    /// Its name in the cache.
    public let name: SourceName
    /// Where each tile is; for a source of ``local`` tiles nowhere, as the path of a file; where an archive or a set at a server is.
    public let template: URLTemplate
    /// Where its tiles come from if this machine has them: then no request is sent and nothing is stored.
    public let local: (any LocalTiles)?
    /// Where its tiles are if they lie in a file at a server, or among the files of a published set.
    package let remote: (any TilesAtServer)?
    /// The zooms that the server has; what is set is limited to 0 to 28.
    public var zooms: ClosedRange<Int> { didSet { zooms = zooms.clamped(to: 0...28) } }
    /// Points along a tile's edge: 256 or 512.
    public var tileSize = 256
    /// The extension in its keys, for a source that has several formats, such as `png`; `nil` for one that has one.
    public var format: String?
    /// What its tiles are.
    public var kind = TileKind.image
    /// Sent with every request.
    ///
    /// A `User-Agent` here replaces the library's own; a field that the cache itself needs (conditional and range fields)
    /// is not taken over.
    public var headers = HTTPFields()
    /// The hook for what differs from request to request.
    public var prepare: RequestHook?
    /// Lifetimes where the server leaves them open.
    public var lifetimes = LifetimeRules()
    /// What holds when the server cannot be asked.
    public var offlineUse = OfflineUse.whenAllowed
    /// Whether tiles past the last zoom are made from those of lower ones; needs ``TileCacheConfiguration/magnifier``.
    public var overzoom = OverzoomRules()
    /// No larger body is read.
    public var bodyLimit = 16 << 20
    /// How long one request may take, last byte included.
    ///
    /// Those who ask for a tile at the same time share one request, and the longest time that one of them allows holds for all of
    /// them.
    public var timeout = Duration.seconds(30)
    /// So often a request is sent for one ask that nothing in the cache can answer, before it fails.
    ///
    /// Only after failures that may pass: no answer, 500, 502, 503, 504, 429.
    public var attempts = 2

    /// Describes a source.
    ///
    /// - Parameters:
    ///   - name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    ///   - template: The URL of a tile with placeholders; see ``URLTemplate``.
    ///   - subdomains: What `{s}` stands for; one tile always asks the same one.
    ///   - values: What other placeholders of the template stand for.
    ///   - zooms: The zooms that the server has, within 0 to 28.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidSource``, saying what is wrong.
    public init(
        _ name: String, template: String, subdomains: [String] = [], values: [String: String] = [:],
        zooms: ClosedRange<Int> = 0...22
    ) throws {
        try self.init(name, template, subdomains, values, zooms, local: nil)
    }

    /// Describes a source of tiles that this machine has.
    ///
    /// Every `LoadMode` gives what is there; a tile that is not there is absent (404). Regions of it need no download.
    /// - Parameters:
    ///   - name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    ///   - local: Where the tiles are.
    ///   - zooms: The zooms that there are, within 0 to 28.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidSource``, saying what is wrong.
    public init(_ name: String, local: any LocalTiles, zooms: ClosedRange<Int> = 0...28) throws {
        try self.init(name, "file:///{z}/{x}/{y}", [], [:], zooms, local: local)
        kind = .any
    }

    /// Describes a source whose tiles are all in one file at a server; who asks for them knows where in it.
    ///
    /// - Parameters:
    ///   - url: With placeholders for ``values`` only.
    ///   - remote: Who knows it; `nil` for one who asks by himself.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidSource``, saying what is wrong.
    package init(
        _ name: String, oneFile url: String, values: [String: String], zooms: ClosedRange<Int>,
        remote: (any TilesAtServer)? = nil
    ) throws {
        try self.init(name, url, [], values, zooms, local: nil, isOneFile: true, remote: remote)
        kind = .any
    }

    /// A source of tiles that this machine should have and cannot give out: ``local`` throws for each of them.
    ///
    /// - Parameter name: A name that is known to be one.
    package init(unavailable name: SourceName, local: any LocalTiles, zooms: ClosedRange<Int>) {
        self.name = name
        template = .none
        self.local = local
        remote = nil
        place = BlobDigest(hashing: UnsafeRawBufferPointer(start: nil, count: 0))
        self.zooms = zooms
        kind = .any
    }

    /// A hash of what is before the template's query, without values: tells sources from each other where secrets must not.
    package let place: BlobDigest

    private init(
        _ name: String, _ template: String, _ subdomains: [String], _ values: [String: String],
        _ zooms: ClosedRange<Int>, local: (any LocalTiles)?, isOneFile: Bool = false,
        remote: (any TilesAtServer)? = nil
    ) throws {
        do { self.name = try SourceName(name) } catch let error as StoreError {
            throw TileCacheError(.invalidSource, error.message, cause: error)
        }
        do {
            self.template =
                isOneFile
                ? try URLTemplate(oneFile: template, values: values)
                : try URLTemplate(template, subdomains: subdomains, values: values)
        } catch {
            throw TileCacheError(.invalidSource, "source \(name): \(error)", cause: error)
        }
        self.local = local
        self.remote = remote
        let path = template.prefix { $0 != "?" && $0 != "#" }
        place = Array("\(path)\n\(subdomains.sorted())".utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
        guard zooms.lowerBound >= 0, zooms.upperBound <= 28 else {
            throw TileCacheError(.invalidSource, "source \(name): zooms \(zooms) are not within 0...28")
        }
        self.zooms = zooms
    }

    /// The key of a tile of this source, or of one that ``overzoom`` adds.
    ///
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/outOfBounds`` for a tile that the source does not have.
    public func key(z: Int, x: Int, y: Int, scale: Int = 1) throws -> TileKey {
        do {
            let tile = try TileAddress(z: z, x: x, y: y, scale: self.scale(for: scale), format: format)
            if !servedZooms.contains(z) { try check(tile) }
            return TileKey(source: name, tile: tile)
        } catch let error as StoreError {
            throw TileCacheError(.outOfBounds, error.message, cause: error)
        }
    }

    /// The scale that is in the keys: 1 where the template has no place for it, so that no tile is stored twice.
    func scale(for scale: Int) -> Int { template.usesScale ? scale : 1 }

    /// Whether the source has tiles of such an address.
    @inline(__always)
    func check(_ tile: TileAddress) throws {
        guard zooms.contains(tile.z) else {
            throw TileCacheError(
                .outOfBounds, "source \(name) has zooms \(zooms.lowerBound) to \(zooms.upperBound), not \(tile.z)")
        }
    }
}

extension TileSource {
    /// The use of the engine for its tiles.
    package func use(_ kind: CacheKind, name: String) -> CacheUse {
        let policy = CachePolicy(
            kind: kind, defaultLifetime: Int(clamping: lifetimes.unstated.components.seconds),
            minimumLifetime: lifetimes.minimum.map { Int(clamping: $0.components.seconds) },
            overridesOrigin: lifetimes.overridesServer)
        var use = CacheUse(
            tiles: policy, absent: Int(clamping: lifetimes.absent.components.seconds),
            staleOnError: Int(clamping: lifetimes.staleOnError.components.seconds), storedBodyBytes: bodyLimit,
            name: name)
        use.servesStaleAlways = offlineUse == .always
        return use
    }

    /// The fields of every request to its server.
    package func requestFields(userAgent: String) -> HTTPFields {
        var fields = HTTPFields()
        fields[.userAgent] = userAgent
        fields[.accept] = kind.accept
        fields[.acceptEncoding] = kind.acceptEncoding
        for name in Set(headers.map(\.name)) { fields[values: name] = headers[values: name] }
        return fields
    }

    /// The request for one of its tiles.
    package func request(for tile: TileAddress, _ fields: HTTPFields) -> HTTPRequest {
        template.url(for: tile).request(fields)
    }
}

extension TileSource: CustomStringConvertible, CustomReflectable {
    /// The name; never the template, which may hold secrets.
    public var description: String { name.description }

    /// What holds no secret: neither header fields nor the template.
    public var customMirror: Mirror {
        Mirror(
            self,
            children: ["name": name, "hosts": template.hosts, "zooms": zooms, "tileSize": tileSize, "kind": kind],
            displayStyle: .struct)
    }
}
