import CacheEngine
import HTTPCaching
import HTTPTypes
import HTTPWire
import OriginClient
import SharedTier
import TileCache
package import TileStore

/// A source with everything that is decided once about it: what of it is served, and what its answers say.
package final class ServedSource: Sendable {
    /// As the operator described it.
    private let given: SourceConfiguration
    /// The same, filled up with what an archive says of itself.
    package let configuration: SourceConfiguration
    /// The number of its configuration: another one after each change, the same as long as there is none.
    let generation: UInt64
    /// What more an archive says.
    let description: MapDescription
    /// The servers that it asks, mirrors included; none for files.
    let hosts: Set<Origin>
    /// What an operator should know.
    let warnings: [String]
    /// As the library asks it.
    let tiles: TileSource
    /// The use of the engine for its tiles.
    let use: CacheUse
    /// As the fleet knows it; `nil` if nothing of it is shared.
    let shared: SharedSource?
    /// Its archive or set, if that is at a server.
    let remote: (any RemoteTiles)?
    /// The servers that stand for the template's.
    let mirrors: [OriginHost]
    /// The name under which failures of all its hosts are noted, if it has mirrors.
    let hostGroup: String?
    /// Its place among the sources.
    let index: Int
    /// The version of a set that it is bound to, so that its tiles never change; `nil` if it is what its name stands for.
    let version: SourceVersion?
    /// The versions of a published set, each bound; the latest first.
    let versions: [ServedSource]
    /// The file that it is read from, and what that was before it was opened, if it is to be read anew when it is replaced.
    let watched: WatchedFile?
    /// What its tiles are, as far as can be known without looking at them.
    let kind: TileKind
    /// Whether its tiles are files of this machine.
    let isLocal: Bool
    /// The file extensions that its routes take; empty for any.
    let formats: [[UInt8]]
    /// The value of `Access-Control-Allow-Origin`.
    let allowedOrigin: String?
    /// The media type where the server says none.
    let fallbackType: String
    /// Whether its tiles differ by their scale.
    let usesScale: Bool
    /// The zooms that are served.
    private let zooms: ClosedRange<Int>
    private let nameBytes: [UInt8]
    /// By zoom, if there is a box.
    private let spans: [[TileSpan]]

    /// Prepares a source; opens its archive, if it is one.
    ///
    /// - Parameter version: The version of a published set to be bound to.
    /// - Throws: ``ConfigError``.
    init(
        _ given: SourceConfiguration, index: Int, generation: UInt64 = 0, version: SourceVersion? = nil
    ) throws(ConfigError) {
        self.given = given
        self.index = index
        self.generation = generation
        self.version = version
        watched = version == nil ? WatchedFile(of: given) : nil
        func fail(_ message: String) -> ConfigError {
            ConfigError(place: "configuration", key: "sources.\(given.name)", message)
        }
        let configuration: SourceConfiguration
        var tiles: TileSource
        if let path = given.archivePath {
            let archive = try ArchiveOfSource(path, given, version: version, or: fail)
            configuration = archive.configuration
            tiles = archive.tiles
            description = archive.description
            var warnings = archive.warnings
            var bound: [ServedSource] = []
            for version in version == nil ? archive.versions : [] {
                do throws(ConfigError) {
                    let source = try ServedSource(
                        given, index: index, generation: SourceTable.newGeneration(), version: version)
                    bound.append(source)
                } catch {
                    warnings.append("source \(given.name): version \(version.identifier) cannot be read: \(error)")
                }
            }
            (self.warnings, versions) = (warnings, bound)
            hosts = []
        } else {
            configuration = given
            tiles = try given.source(or: fail)
            hosts = try given.hosts(of: tiles.template, or: fail)
            description = MapDescription()
            versions = []
            warnings =
                given.missingFolder.map {
                    ["source \(given.name): there is no folder \($0): its tiles are 404 until there is"]
                } ?? []
        }
        self.configuration = configuration
        self.tiles = tiles
        use = tiles.use(.shared, name: "tileproxy")
        shared = configuration.sharedSource
        remote = given.remoteTiles
        mirrors = configuration.mirrors.compactMap { OriginHost($0) }
        hostGroup = configuration.mirrors.isEmpty ? nil : "the hosts of \(configuration.name) (\(generation))"
        usesScale = tiles.template.usesScale
        zooms = tiles.servedZooms
        nameBytes = Array(configuration.name.description.utf8)
        let format = configuration.format ?? (remote == nil ? Self.format(of: configuration.template) : nil)
        formats = format.map { Self.spellings(of: $0).map { Array($0.utf8) } } ?? []
        kind = configuration.servedKind
        isLocal = configuration.isLocal
        fallbackType = Self.mediaType(ofFormat: format, kind)
        switch configuration.sharing {
        case .all: allowedOrigin = "*"
        case .none: allowedOrigin = nil
        case .origin(let origin): allowedOrigin = origin
        }
        do {
            spans = try given.box.map { box in try (0...28).map { try box.spans(zoom: $0) } } ?? []
        } catch { throw fail("its box cannot be used: \(error)") }
    }

    /// Its name.
    package var name: SourceName { configuration.name }

    /// The versions that can be asked for, the latest first.
    var knownVersions: [SourceVersion] { remote?.versions ?? versions.compactMap(\.version) }

    /// Whether it is a published set.
    var hasVersions: Bool { remote is RemoteSet || !versions.isEmpty }

    /// The version whose root begins with some digits; `nil` if none does, or several do.
    fileprivate func version(_ digits: UnsafeRawBufferPointer) -> NamedSource? {
        if remote is RemoteSet {
            // Which versions there are, is asked when a tile of one is.
            guard SourceVersion.isNamed(by: digits) else { return nil }
            return NamedSource(source: self, version: String(decoding: digits, as: UTF8.self))
        }
        let found = versions.filter { $0.version?.begins(with: digits) ?? false }
        return found.count == 1 ? NamedSource(source: found[0], version: nil) : nil
    }

    /// The same, opened anew.
    ///
    /// Blocks.
    /// - Throws: ``ConfigError``.
    func reopened() throws(ConfigError) -> ServedSource {
        // The old version is whole; a new one that is not yet takes its place when it is.
        do { try ArchiveOfSource.checkWhole(given) } catch {
            throw ConfigError(place: "configuration", key: "sources.\(name)", "\(error)")
        }
        return try opened()
    }

    private func opened() throws(ConfigError) -> ServedSource {
        try ServedSource(given, index: index, generation: SourceTable.newGeneration())
    }

    /// Whether it is what the operator describes now.
    fileprivate func isOf(_ given: SourceConfiguration) -> Bool { self.given == given }

    /// What requests for one of its tiles share a fill by.
    func flight(_ key: TileKey, of version: String? = nil, isReload: Bool = false) -> TileFlight {
        TileFlight(key: key, generation: generation, version: version, isReload: isReload)
    }

    @inline(__always)
    func isNamed(_ bytes: UnsafeRawBufferPointer) -> Bool {
        bytes.count == nameBytes.count && nameBytes.withUnsafeBytes { $0.elementsEqual(bytes) }
    }

    /// Whether a tile is within the zooms and the box.
    @inline(__always)
    func covers(z: Int, x: Int, y: Int) -> Bool {
        guard zooms.contains(z), x < 1 << z, y < 1 << z else { return false }
        return spans.isEmpty || spans[z].contains { $0.contains(z: z, x: x, y: y) }
    }

    /// Whether tiles of a zoom are made from those of lower ones.
    @inline(__always)
    func overzooms(_ z: Int) -> Bool { z > tiles.zooms.upperBound }

    /// Whether the route takes a file extension.
    @inline(__always)
    func takes(format: UnsafeRawBufferPointer) -> Bool {
        formats.isEmpty || formats.contains { $0.count == format.count && $0.elementsEqual(format) }
    }

    // MARK: Formats

    /// The extension that a template ends with, before its query.
    static func format(of template: String) -> String? {
        let path = template.prefix { $0 != "?" }
        guard let dot = path.lastIndex(of: "."), path[dot...].firstIndex(of: "/") == nil else { return nil }
        let text = path[path.index(after: dot)...]
        guard (2...5).contains(text.utf8.count), text.utf8.allSatisfy(isExtensionByte) else { return nil }
        return String(text)
    }

    /// An extension and its other spelling.
    private static func spellings(of format: String) -> [String] {
        for pair in [["jpg", "jpeg"], ["pbf", "mvt"], ["json", "geojson"]] where pair.contains(format) { return pair }
        return [format]
    }

    /// The media type of files with an extension.
    static func mediaType(ofFormat format: String?, _ kind: TileKind) -> String {
        switch format ?? "" {
        case "png": return "image/png"
        case "jpg", "jpeg": return "image/jpeg"
        case "webp": return "image/webp"
        case "avif": return "image/avif"
        case "gif": return "image/gif"
        case "svg": return "image/svg+xml"
        case "pbf", "mvt": return "application/vnd.mapbox-vector-tile"
        case "json": return "application/json"
        case "geojson": return "application/geo+json"
        default: break
        }
        switch kind {
        case .vector: return "application/vnd.mapbox-vector-tile"
        case .json: return "application/json"
        case .image, .any: return "application/octet-stream"
        }
    }
}

/// All sources at one time: a value that is swapped as a whole when the configuration is read again.
package struct SourceTable: Sendable {
    package let sources: [ServedSource]
    /// How clients reach this server, if the operator has said so.
    package let publicURL: String?
    /// The number of the latest configuration of any source; none is used twice in a process.
    private static let lastGeneration = Locked<UInt64>(0)

    /// All servers that they ask.
    var hosts: Set<Origin> { sources.reduce(into: []) { $0.formUnion($1.hosts) } }

    /// What an operator should know of them.
    var warnings: [String] { sources.flatMap(\.warnings) }

    /// Prepares all sources of a configuration.
    ///
    /// Opens archives, and so blocks.
    /// - Parameter former: The table that it replaces: sources that have not changed keep their number.
    /// - Throws: ``ConfigError``.
    package init(_ configuration: ProxyConfiguration, after former: SourceTable? = nil) throws(ConfigError) {
        var sources: [ServedSource] = []
        for (index, source) in configuration.sources.enumerated() {
            let known = former?.sources.first { $0.isOf(source) }?.generation
            sources.append(try ServedSource(source, index: index, generation: known ?? Self.newGeneration()))
        }
        self.sources = sources
        publicURL = configuration.publicURL
    }

    private init(_ sources: [ServedSource], publicURL: String?) {
        (self.sources, self.publicURL) = (sources, publicURL)
    }

    /// A number that no configuration of a source has.
    fileprivate static func newGeneration() -> UInt64 {
        lastGeneration.withLock { last in
            last += 1
            return last
        }
    }

    /// The same table with another source in the place of one.
    func replacing(_ source: ServedSource) -> SourceTable {
        var sources = sources
        sources[source.index] = source
        return SourceTable(sources, publicURL: publicURL)
    }

    /// The source with a name, or a version of one by `NAME@ID`.
    @inline(__always)
    func source(named bytes: UnsafeRawBufferPointer) -> NamedSource? {
        for source in sources where source.isNamed(bytes) { return NamedSource(source: source, version: nil) }
        return version(named: bytes)
    }

    /// Why no tiles go by a name that ``source(named:)`` does not know.
    func refusal(of bytes: UnsafeRawBufferPointer) -> String {
        guard let mark = bytes.firstIndex(of: 64),
            sources.contains(where: { $0.hasVersions && $0.isNamed(bytes.part(0, mark)) })
        else { return "There is no such source." }
        return Self.noSuchVersion
    }

    /// What is said of a version that a set does not name.
    static let noSuchVersion = "The set has no such version."

    private func version(named bytes: UnsafeRawBufferPointer) -> NamedSource? {
        guard let mark = bytes.firstIndex(of: 64) else { return nil }
        let name = bytes.part(0, mark)
        for source in sources where source.isNamed(name) { return source.version(bytes.part(mark + 1, bytes.count)) }
        return nil
    }

    /// The source with a name.
    func source(named name: String) -> ServedSource? { sources.first { $0.name.description == name } }
}

/// A source as a route names it.
struct NamedSource {
    let source: ServedSource
    /// The first digits of the version's root, if it is one of a set at a server.
    let version: String?
}
