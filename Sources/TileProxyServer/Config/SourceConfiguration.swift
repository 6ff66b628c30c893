package import HTTPTypes
import HTTPWire
import OriginClient
package import TileCache
package import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// One tile source as the operator describes it: a value; ``ServedSource`` is made from it.
package struct SourceConfiguration: Hashable, Sendable {
    /// Which other sites may read its tiles in browsers.
    package enum Sharing: Hashable, Sendable {
        /// Any: `Access-Control-Allow-Origin: *`.
        case all
        /// None.
        case none
        /// This one.
        case origin(String)
    }

    /// Its name in routes and keys.
    package var name: SourceName
    /// The URL of a tile, or the path of a file, with placeholders, or the path of an archive; may hold secrets.
    package var template: String
    /// Scheme and host of servers that have the same paths, asked in turn when the template's own fails.
    package var mirrors: [String] = []
    /// What `{s}` stands for.
    package var subdomains: [String] = []
    /// What placeholders of other names stand for; may hold secrets.
    package var values: [String: String] = [:]
    /// The zooms that the source has; `nil` for what an archive has, else 0 to 22.
    package var zooms: ClosedRange<Int>?
    /// So many zooms past the last one tiles are made from lower zooms; pictures only.
    package var overzoom = 0
    /// Where tiles are served; `nil` for everywhere.
    package var box: GeoBox?
    /// Points along a tile's edge.
    package var tileSize = 256
    /// The file extension of its tiles.
    package var format: String?
    /// What its tiles are; `nil` for what their extension says, else pictures.
    package var kind: TileKind?
    /// A name for people.
    package var title: String?
    /// Whose data it is, as HTML with links at most.
    package var attribution: String?
    /// Which other sites may read its tiles in browsers.
    package var sharing = Sharing.all
    /// Sent with every request; secret.
    package var headers = HTTPFields()
    /// Lifetimes.
    package var lifetimes = LifetimeRules()
    /// Whether stale tiles are served at any age when the server cannot be asked.
    package var isAlwaysOffline = false
    /// Bytes on disk that it may take of the cache's capacity; `nil` for all of it.
    package var capacity: Int?
    /// Whether its tiles go to the fleet's bucket; `nil` for what its headers and lifetimes allow.
    package var isShared: Bool?
    /// No larger body is read.
    package var bodyLimit = 16 << 20
    /// How long a request may take.
    package var timeout = Duration.seconds(30)
    /// How often a request is sent for one ask.
    package var attempts = 2
    /// Whether an archive is read anew when its file is replaced; a published set always is.
    package var isWatched = false

    package init(name: SourceName, template: String) {
        self.name = name
        self.template = template
    }

    /// `NAME=TEMPLATE`, as the command line has it.
    ///
    /// - Throws: ``ConfigError``.
    package init(argument: String) throws(ConfigError) {
        guard let mark = argument.firstIndex(of: "="), mark != argument.startIndex else {
            throw ConfigError(place: "--source", "expected NAME=TEMPLATE, such as osm=https://host/{z}/{x}/{y}.png")
        }
        let text = String(argument[..<mark])
        guard let name = try? SourceName(text) else {
            throw ConfigError(
                place: "--source", key: String(Redacted.text(text).prefix(64)),
                "a name is 1 to 64 characters of A-Z a-z 0-9 . _ -")
        }
        self.init(name: name, template: String(argument[argument.index(after: mark)...]))
        try check(or: { ConfigError(place: "--source", key: text, $0) })
    }

    /// Whether its tiles are files of this machine.
    package var isLocal: Bool { !template.contains("://") || template.hasPrefix("file:") }

    /// The folder of its files, as far as no placeholder is part of it, if it is not there.
    var missingFolder: String? {
        guard isLocal, archivePath == nil else { return nil }
        let start = templateURL.prefix { $0 != "{" }
        guard let slash = start.lastIndex(of: "/"),
            let folder = URL(string: String(start[...slash]))?.path(percentEncoded: false)
        else { return nil }
        return FileManager.default.fileExists(atPath: folder) ? nil : folder
    }

    /// The zooms that the source has, where nobody says which.
    var ownZooms: ClosedRange<Int> { zooms ?? (remoteFormat != nil ? 0...28 : 0...22) }

    /// The zooms that are served, those that ``overzoom`` adds included.
    package var servedZooms: ClosedRange<Int> { ownZooms.lowerBound...min(28, ownZooms.upperBound + overzoom) }

    /// The rules of overzoom for the kind of tiles that it has.
    ///
    /// - Throws: What the closure makes of a message.
    func overzoomRules(_ kind: TileKind, or fail: (String) -> ConfigError) throws(ConfigError) -> OverzoomRules {
        if overzoom > 0, kind == .vector || kind == .json {
            throw fail("overzoom is for pictures: maps draw vector tiles at any zoom themselves")
        }
        return OverzoomRules(levels: overzoom)
    }

    /// What its tiles are, as far as can be known without looking at them; reads the template each time.
    var servedKind: TileKind {
        if let kind { return kind }
        // An archive says it itself, once it is open.
        if format == nil, remoteFormat != nil { return .any }
        switch format ?? ServedSource.format(of: template) {
        case "pbf", "mvt": return .vector
        case "json", "geojson": return .json
        default: return .image
        }
    }

    /// Looks for mistakes, without opening anything.
    ///
    /// - Throws: What the closure makes of a message.
    func check(or fail: (String) -> ConfigError) throws(ConfigError) {
        if isLocal, capacity != nil {
            throw fail("'capacity' is for tiles of other servers: those of this machine take no room in the cache")
        }
        guard archivePath == nil else { return }
        if isWatched { throw fail("'watch' is for MBTiles and PMTiles files") }
        _ = try hosts(of: source(or: fail).template, or: fail)
        for field in headers where UpstreamRequest.reserved.contains(field.name.canonicalName) {
            throw fail("the header field \(field.name) is for the connection to set: leave it out")
        }
        for field in headers where field.name.canonicalName == "host" {
            guard Array(field.value.utf8).withUnsafeBytes(RequestTarget.isAuthority) else {
                throw fail("the header field Host has a value that is no host")
            }
        }
    }

    /// The servers that a template and the mirrors name; none for files.
    ///
    /// - Throws: What the closure makes of a message, if one of its URLs could not be sent.
    func hosts(of template: URLTemplate, or fail: (String) -> ConfigError) throws(ConfigError) -> Set<Origin> {
        var hosts: Set<Origin> = []
        guard template.scheme != .file else { return [] }
        // A tile's column says which of the subdomains it is asked from.
        for column in 0..<max(1, subdomains.count) {
            let url = template.url(for: TileAddress(unchecked: 28, column, 0, 1, nil))
            if let objection = UpstreamRequest.objection(toTarget: url.path) {
                throw fail("its template leads to what cannot be sent: \(objection)")
            }
            guard let origin = Origin("\(url.scheme.rawValue)://\(url.authority)") else {
                throw fail("its template names no host and port that can be asked")
            }
            hosts.insert(origin)
        }
        for mirror in mirrors {
            guard let origin = Origin(mirror) else { throw fail("a mirror is no host that can be asked") }
            hosts.insert(origin)
        }
        return hosts
    }

    /// The template as a URL: a path becomes a `file:` URL.
    var templateURL: String {
        guard !template.contains("://"), !template.hasPrefix("file:") else { return template }
        let path = template.hasPrefix("/") ? template : FileManager.default.currentDirectoryPath + "/" + template
        // A path is no URL: what would be read as one is encoded.
        return "file://"
            + path.replacing("%", with: "%25").replacing("?", with: "%3F")
            .replacing("#", with: "%23").replacing(" ", with: "%20")
    }

    /// The source as the library has it; for one that is no archive.
    ///
    /// - Throws: What the closure makes of a message.
    func source(or fail: (String) -> ConfigError) throws(ConfigError) -> TileSource {
        let isArchive = remoteFormat != nil
        if isArchive { try checkRemoteArchive(or: fail) } else { try checkIsNoArchive(or: fail) }
        var source: TileSource
        do {
            source =
                isArchive
                ? try TileSource(name.description, oneFile: template, values: values, zooms: ownZooms)
                : try TileSource(
                    name.description, template: templateURL, subdomains: subdomains, values: values, zooms: ownZooms)
        } catch let error as TileCacheError {
            throw fail(error.message)
        } catch { throw fail("cannot be used") }
        source.tileSize = tileSize
        source.format = nil
        source.kind = servedKind
        source.headers = headers
        source.lifetimes = lifetimes
        source.offlineUse = isAlwaysOffline ? .always : .whenAllowed
        source.bodyLimit = bodyLimit
        source.timeout = timeout
        source.attempts = attempts
        source.overzoom = try overzoomRules(servedKind, or: fail)
        return source
    }
}
