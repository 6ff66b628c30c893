import TileArchive
import TileSets
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

extension SourceConfiguration {
    /// The path of the archive that it names, if it does.
    var archivePath: String? {
        let path: String
        if template.hasPrefix("file://") {
            path = URL(string: template)?.path(percentEncoded: false) ?? String(template.dropFirst(7))
        } else {
            path = template
        }
        return isLocal && !path.contains("{") && ArchiveFormat(path: path) != .folder ? path : nil
    }

    /// The path of the published set that it names, if it does.
    var setPath: String? { archivePath.flatMap { ArchiveFormat(path: $0) == .set ? $0 : nil } }

    /// What it names at a server, if it is no template for tiles' URLs: a PMTiles archive, or a published set.
    var remoteFormat: ArchiveFormat? {
        guard !isLocal else { return nil }
        switch ArchiveFormat(path: String(template.prefix { $0 != "?" })) {
        case .pmtiles: return .pmtiles
        case .set: return .set
        case .mbtiles, .folder: return nil
        }
    }

    /// What tells the file that it names at a server from all others; without anything that may be secret.
    ///
    /// A query may say which file it is.
    var fileIdentity: String {
        let traits = [Self.withoutSecrets(template)] + plainValues
        let digest = Array(traits.joined(separator: "\n").utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
        return String(digest.description.prefix(16))
    }

    /// The archive or the set that it names at a server, if it does.
    var remoteTiles: (any RemoteTiles)? {
        switch remoteFormat {
        case .pmtiles: RemoteArchive(self)
        case .set: RemoteSet(self)
        default: nil
        }
    }

    /// Refuses an archive that can only be read as a file of this machine.
    ///
    /// - Throws: What the closure makes of a message.
    func checkIsNoArchive(or fail: (String) -> ConfigError) throws(ConfigError) {
        switch ArchiveFormat(path: template) {
        case .mbtiles: throw fail("an MBTiles archive must be a file of this machine; PMTiles may be at a server")
        case .pmtiles: throw fail("a PMTiles archive at a server needs an http or https URL")
        case .set: throw fail("a published set at a server needs an http or https URL")
        case .folder: break
        }
    }

    /// Refuses what an archive or a set at a server cannot have.
    ///
    /// - Throws: What the closure makes of a message.
    func checkRemoteArchive(or fail: (String) -> ConfigError) throws(ConfigError) {
        guard mirrors.isEmpty, subdomains.isEmpty else {
            throw fail("an archive at a server has neither mirrors nor subdomains: its copies differ in their versions")
        }
        if remoteFormat == .set, !template.prefix(while: { $0 != "?" }).hasSuffix("/" + SetDocument.path) {
            throw fail("a set at a server is named by its set.json alone: a version of it is at /tiles/NAME@ID/…")
        }
        if isShared == true { throw fail("'shared' is not for archives at a server") }
        if overzoom > 0, zooms == nil {
            throw fail("overzoom of an archive at a server needs its zooms: they are not known before it is opened")
        }
    }
}
