import TileArchive
public import TileCache
import TileSets
import TileStore

extension TileSource {
    /// Describes a source whose tiles are in a file at a server: a published set, or a PMTiles archive.
    ///
    /// Of a set, `set.json` is asked for every few seconds at most, and a new version is taken up within ten. All else is asked for once:
    /// lists, and the tiles by their contents, so that equal ones are fetched and stored once, and a new version costs what is new in
    /// it. Of an archive some bytes are asked for at a time, all of one version of the file; its server has to support range requests,
    /// and to tell versions by an `ETag` or by `Last-Modified`. Nothing is sent before a tile is wanted.
    ///
    /// ``TileSource/headers`` and ``TileSource/prepare`` are for each of these requests; the hook is told the key of the part that is asked
    /// for. The tiles of an archive lie under their own keys; those of a set under their contents, which no region can pin.
    /// - Parameters:
    ///   - name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    ///   - url: Where `set.json`, or a file that ends in `.pmtiles`, is, by `http` or `https`, with placeholders for ``values`` only.
    ///   - version: Which version of a set: the first digits of its root, eight at least; `nil` for the latest.
    ///   - values: What the URL's placeholders stand for: an access token, say.
    ///   - zooms: The zooms that there are, within 0 to 28, where more is known than the file says.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidSource``, saying what is wrong.
    public init(
        _ name: String, archiveAt url: String, version: String? = nil, values: [String: String] = [:],
        zooms: ClosedRange<Int> = 0...28
    ) throws {
        // What tells the file from others: as a source of its own would have it, without what may be secret.
        let plain = try TileSource(name, oneFile: url, values: values, zooms: zooms)
        guard plain.template.scheme != .file else {
            throw TileCacheError(
                .invalidSource,
                "source \(name): an archive at a server needs an http or https URL; a file is named by 'archive:'")
        }
        let identity = String(plain.place.description.prefix(16))
        let remote: any TilesAtServer
        switch ArchiveFormat(path: String(url.prefix { $0 != "?" })) {
        case .set:
            let parts = SetParts(of: plain.name, identity: identity)
            remote = SetAtServer(parts, version: try Self.digits(version, name))
        case .pmtiles where version == nil: remote = ArchiveAtServer(ArchiveParts(of: plain.name, identity: identity))
        case .pmtiles:
            throw TileCacheError(.invalidSource, "source \(name): only published sets have versions to choose from")
        case .mbtiles, .folder:
            throw TileCacheError(
                .invalidSource,
                "source \(name): at a server, an archive is a PMTiles file or the set.json of a published set; tiles by their own URLs are "
                    + "named by 'template:'")
        }
        try self.init(name, oneFile: url, values: values, zooms: zooms, remote: remote)
    }

    /// The first digits of a root.
    ///
    /// - Throws: ``TileCacheError`` if they are none.
    private static func digits(_ version: String?, _ name: String) throws -> String? {
        guard let version else { return nil }
        guard (SetReader.fewestDigits...64).contains(version.utf8.count),
            version.utf8.allSatisfy({ (48...57).contains($0) || (97...102).contains($0) })
        else {
            throw TileCacheError(
                .invalidSource,
                "source \(name): a version of a set is named by \(SetReader.fewestDigits) to 64 of its root's first digits"
            )
        }
        return version
    }
}
