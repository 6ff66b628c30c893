import TileArchive
import TileCache
import TileCacheArchive
import TileStore

/// The archive behind a source, opened; and what it says of itself where the operator says nothing.
struct ArchiveOfSource {
    /// As the library asks it.
    let tiles: TileSource
    /// What the operator said, filled up with what the archive says.
    ///
    /// Its zooms and its box are for descriptions: what an archive claims often falls short of what it has.
    let configuration: SourceConfiguration
    let description: MapDescription
    /// What an operator should know, such as a missing index.
    let warnings: [String]
    /// The versions that a published set has, the latest first; empty for other archives.
    let versions: [SourceVersion]

    /// Opens a file.
    ///
    /// Blocks.
    /// - Parameter version: Which version of a published set; `nil` for the latest.
    /// - Throws: What the closure makes of a message.
    init(
        _ path: String, _ given: SourceConfiguration, version: SourceVersion? = nil, or fail: (String) -> ConfigError
    ) throws(ConfigError) {
        let archive: any ArchiveReader
        var tiles: TileSource
        do {
            let format = ArchiveFormat(path: path)
            archive = try format == .set ? SetReader(path, version: version?.root) : format.open(path)
            tiles = try TileSource(given.name.description, archive: archive)
        } catch let error as ArchiveError {
            throw fail(error.message)
        } catch let error as TileCacheError {
            throw fail(error.message)
        } catch { throw fail("\(path) cannot be opened: \(error)") }
        let said = archive.metadata
        let saidZooms = said.zooms?.clamped(to: 0...28)
        // Past which zoom tiles are made, only the operator or the archive can say.
        tiles.zooms = given.zooms ?? (given.overzoom > 0 ? saidZooms : nil) ?? 0...28
        tiles.kind = given.kind ?? tiles.kind
        tiles.overzoom = try given.overzoomRules(tiles.kind, or: fail)
        tiles.tileSize = given.tileSize
        tiles.bodyLimit = given.bodyLimit
        self.tiles = tiles
        warnings = archive.warnings
        versions = (archive as? SetReader).map { SourceVersion.all(of: $0.document) } ?? []

        (configuration, description) = given.described(by: said, kind: tiles.kind)
    }

    /// Checks that all lists of a published set are there; blocks.
    ///
    /// - Throws: ``ArchiveError``.
    static func checkWhole(_ given: SourceConfiguration) throws {
        if let path = given.setPath { try SetReader(path).checkLists() }
    }
}

extension SourceConfiguration {
    /// What the operator said, filled up with what an archive says; and what more that says of its map.
    ///
    /// - Parameter kind: What the archive's tiles are.
    func described(by said: ArchiveMetadata, kind: TileKind) -> (SourceConfiguration, MapDescription) {
        var configuration = self
        configuration.zooms = zooms ?? said.zooms?.clamped(to: 0...28)
        configuration.box = box ?? said.bounds
        configuration.title = title ?? said.name
        configuration.attribution = attribution ?? said.attribution
        // An extension that no route could have is nobody's.
        let saidFormat = said.tileFormat.flatMap { format in
            (1...12).contains(format.utf8.count) && format.utf8.allSatisfy(isExtensionByte) ? format : nil
        }
        configuration.format = format ?? saidFormat
        configuration.kind = self.kind ?? (kind == .any && said.tileFormat != nil ? .image : kind)
        var description = MapDescription()
        description.text = said.description
        description.center = said.center.map { [$0.longitude, $0.latitude, Double($0.zoom)] }
        description.format = configuration.format
        description.layers = said.vectorLayers.map {
            TileJSON.Layer(
                id: $0.id, fields: $0.fields, description: $0.description, minzoom: $0.minzoom, maxzoom: $0.maxzoom)
        }
        return (configuration, description)
    }
}
