import Foundation
import TileStore

extension TileCache {
    /// Where a cache is kept.
    public enum Place: Sendable {
        /// A folder that only the app empties: offline maps stay.
        ///
        /// On Apple platforms Application Support, excluded from backups, readable from the first unlock on; elsewhere
        /// `$XDG_DATA_HOME` or `~/.local/share`.
        case support
        /// A folder that the system may empty, file by file, when it needs space; the cache survives that.
        ///
        /// On Apple platforms Caches; elsewhere `$XDG_CACHE_HOME` or `~/.cache`.
        case caches
    }

    /// The folder of a cache of this app's, made if it is missing.
    ///
    /// - Parameters:
    ///   - name: The cache's name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    ///   - place: Where it is kept.
    /// - Returns: Its path, for ``init(at:transport:configuration:)``.
    /// - Throws: ``StoreError`` for a name that is none; what the system says if the folder cannot be made.
    public static func folder(named name: String = "Tiles", in place: Place = .support) throws -> String {
        let name = try SourceName(name).description
        #if canImport(Darwin)
        let directory: FileManager.SearchPathDirectory =
            place == .support ? .applicationSupportDirectory : .cachesDirectory
        let base = try FileManager.default.url(
            for: directory, in: .userDomainMask, appropriateFor: nil, create: true)
        var folder = base.appendingPathComponent(name, isDirectory: true)
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        if place == .support {
            // Tiles can be had again; and a map that runs in the background needs them while the device is locked.
            var values = URLResourceValues()
            values.isExcludedFromBackup = true
            try folder.setResourceValues(values)
            #if !os(macOS)
            try FileManager.default.setAttributes(
                [.protectionKey: FileProtectionType.completeUntilFirstUserAuthentication], ofItemAtPath: folder.path)
            #endif
        }
        return folder.path
        #else
        let environment = ProcessInfo.processInfo.environment
        let home = environment["HOME"] ?? NSHomeDirectory()
        let base =
            switch place {
            case .support: environment["XDG_DATA_HOME"] ?? home + "/.local/share"
            case .caches: environment["XDG_CACHE_HOME"] ?? home + "/.cache"
            }
        let folder = base + "/" + name
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        return folder
        #endif
    }
}
