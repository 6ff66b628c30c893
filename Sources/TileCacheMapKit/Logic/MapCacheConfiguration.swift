public import HTTPTypes
public import TileCache
import TileCacheArchive
import TileStore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A map in one value: where its tiles are, which there are, where they are kept, and which comes first, cache or server.
///
/// ```swift
/// var configuration = MapCacheConfiguration(urlTemplate: "https://tiles.example/{z}/{x}/{y}{r}.png")
/// configuration.maximumZ = 17
/// configuration.capacity = 200_000_000
/// let cache = try MapCache(configuration)
/// ```
public struct MapCacheConfiguration: Sendable {
    /// Changes the bytes of a tile before they are drawn or handed to MapKit, for a watermark, say.
    ///
    /// What it returns is not stored. Called on any thread, for every tile that is drawn or loaded.
    public typealias ByteHook = @Sendable (_ data: Data, _ tile: TileAddress) throws -> Data

    /// The URL of a tile, with `{z}`, `{x}`, `{y}` and what else `URLTemplate` knows: `{s}`, `{scale}`, `{r}`, `{-y}`,
    /// `{q}`, values of your own; `http`, `https` or `file`.
    public var urlTemplate: String
    /// An MBTiles file, a PMTiles file, a published set or a folder `z/x/y.png` whose tiles are shown; `nil` for tiles that
    /// have URLs of their own.
    ///
    /// On this device they are read where they are and never copied. The zooms are those that the archive says; where it does
    /// not, those from ``minimumZ`` to ``maximumZ``. MBTiles needs the package's trait `MBTiles`.
    ///
    /// The URL of a `.pmtiles` file or of a set's `set.json` at a server will do as well: what is looked at is fetched and
    /// cached, and a new version of the file is taken up. Its zooms are those from ``minimumZ`` to ``maximumZ``, and it may have
    /// placeholders for ``values``. Whether its tiles are pictures shows when the first one is asked for.
    public var archive: URL?
    /// What `{s}` stands for; empty for `a`, `b` and `c`, which is what most servers with subdomains have.
    ///
    /// One tile is always asked from the same one. A template without `{s}` has none.
    public var subdomains: [String] = []
    /// What other placeholders of the template, or of an archive's URL at a server, stand for: an access token, say.
    public var values: [String: String] = [:]
    /// The first zoom that the server has.
    public var minimumZ = 0
    /// The last zoom that the server has.
    public var maximumZ = 19
    /// Whether the tiles of the last zoom are enlarged where somebody looks closer than that.
    public var overzooms = true
    /// Points along a tile's edge.
    public var tileSize = 256
    /// The pixels per point that the server has tiles for, where the template has `{scale}` or `{r}`.
    public var scales = 1...2
    /// Whether the server counts rows from the south: `{y}` of the template then is what `{-y}` is else.
    public var isGeometryFlipped = false
    /// The name of the cache, and of its folder: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    public var name = "MapCache"
    /// The name of this map in the cache; `nil` for one made from the template, so that two templates never mix.
    ///
    /// Give it one if the template changes over time though its tiles do not, or to name the map in `tilegc`.
    public var sourceName: String?
    /// The folder that the cache's folder is in, as a file URL; `nil` for ``place``.
    public var baseURL: URL?
    /// Whether the system may empty the cache when it needs space.
    public var place = TileCache.Place.support
    /// Bytes on the disk for tiles that no region keeps; `nil` for no limit.
    public var capacity: Int?
    /// Which comes first, cache or server.
    public var loadMode = LoadMode.standard
    /// Sent with every request; name your app and a way to reach you.
    public var userAgent: String?
    /// Sent with every request.
    public var headers = HTTPFields()
    /// Changes each request before it is sent: a device's name, a token, a server nearby.
    ///
    /// What it changes is never part of a key.
    public var prepare: TileSource.RequestHook?
    /// Changes the bytes of each tile before they are drawn.
    public var transform: ByteHook?

    /// Describes a map by its template alone.
    public init(urlTemplate: String) { self.urlTemplate = urlTemplate }

    /// Describes a map whose tiles are in an archive, of this device or at a server.
    public init(archive: URL) {
        urlTemplate = ""
        self.archive = archive
    }

    /// What an overlay has to know of it.
    public var layout: TileLayout {
        let first = min(max(minimumZ, 0), 28)
        return TileLayout(
            zooms: first...min(max(maximumZ, first), 28), tileSize: Double(tileSize),
            scales: min(max(scales.lowerBound, 1), 8)...min(max(scales.upperBound, 1), 8), overzooms: overzooms)
    }

    /// The source that it describes, under a name.
    ///
    /// - Throws: `TileCacheError` with `TileCacheError.Code.invalidSource`, saying what is wrong; `ArchiveError` for an
    ///   archive that cannot be opened.
    func source(named name: String) throws -> TileSource {
        guard minimumZ <= maximumZ else {
            throw TileCacheError(
                .invalidSource, "map \(self.name): the first zoom, \(minimumZ), is beyond the last, \(maximumZ)")
        }
        guard (1...8192).contains(tileSize) else {
            throw TileCacheError(.invalidSource, "map \(self.name): a tile of \(tileSize) points; expected 1 to 8192")
        }
        var source = try archive.map { try self.source(named: name, archive: $0) } ?? server(named: name)
        if archive != nil, source.zooms == 0...28 { source.zooms = (minimumZ...maximumZ).clamped(to: 0...28) }
        source.tileSize = tileSize
        source.headers = headers
        source.prepare = prepare
        return source
    }

    /// The source of a server's tiles, or of files that a template names.
    private func server(named name: String) throws -> TileSource {
        // The template says so too: then the two agree.
        let template =
            isGeometryFlipped && !urlTemplate.contains("{-y}") ? Self.flipped(urlTemplate) : urlTemplate
        let usual = subdomains.isEmpty && template.contains("{s}") ? ["a", "b", "c"] : subdomains
        return try TileSource(
            name, template: template, subdomains: usual, values: values, zooms: minimumZ...maximumZ)
    }

    /// The source of an archive's tiles.
    ///
    /// - Throws: `ArchiveError` if it cannot be opened; `TileCacheError` if its tiles are no pictures.
    private func source(named name: String, archive: URL) throws -> TileSource {
        guard archive.isFileURL else {
            // A URL cannot have braces as they are.
            let text = values.keys.reduce(archive.absoluteString) { text, name in
                text.split(separator: "%7B\(name)%7D", omittingEmptySubsequences: false).joined(separator: "{\(name)}")
            }
            var source = try TileSource(name, archiveAt: text, values: values)
            source.kind = .image
            return source
        }
        let source = try TileSource(name, archive: archive.path)
        guard source.kind == .any else {
            throw TileCacheError(
                .invalidSource,
                "source \(name): \(archive.lastPathComponent) has \(source.kind) tiles, and MapKit draws pictures; "
                    + "use one with PNG, JPEG or WebP")
        }
        return source
    }

    /// What tells its tiles from those of other maps.
    var location: String {
        guard let archive else { return urlTemplate }
        return archive.isFileURL ? archive.path : archive.absoluteString
    }

    private static func flipped(_ template: String) -> String {
        template.split(separator: "{y}", omittingEmptySubsequences: false).joined(separator: "{-y}")
    }
}

extension MapCacheConfiguration: CustomReflectable {
    /// What holds no secret: neither header fields nor values, templates and paths.
    public var customMirror: Mirror {
        Mirror(
            self,
            children: [
                "name": name, "zooms": "\(minimumZ) to \(maximumZ)", "tileSize": tileSize, "loadMode": loadMode,
                "capacity": capacity as Any,
            ], displayStyle: .struct)
    }
}
