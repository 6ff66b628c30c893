import TileArchive

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

    /// Refuses an archive that is not a file of this machine.
    ///
    /// - Throws: What the closure makes of a message.
    func checkIsNoArchive(or fail: (String) -> ConfigError) throws(ConfigError) {
        switch ArchiveFormat(path: template) {
        case .mbtiles: throw fail("an MBTiles archive must be a file of this machine")
        case .pmtiles: throw fail("a PMTiles archive must be a file of this machine")
        case .set:
            throw fail("a published set must be in a folder of this machine: fetch it with 'tilegc pull', or copy it")
        case .folder: break
        }
    }
}
