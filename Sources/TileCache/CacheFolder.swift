import Foundation
import TileStore

extension TileCache {
    /// Where a cache is kept.
    public enum Place: Sendable {
        /// A folder that only the app empties: offline maps stay.
        ///
        /// On Apple platforms Application Support, excluded from backups, readable from the first unlock on; elsewhere
        /// a folder named after the program in `$XDG_DATA_HOME` or `~/.local/share`.
        case support
        /// A folder that the system may empty, file by file, when it needs space; the cache survives that.
        ///
        /// On Apple platforms Caches; elsewhere a folder named after the program in `$XDG_CACHE_HOME` or `~/.cache`.
        case caches
    }

    /// The folder of a cache of this app's, made if it is missing.
    ///
    /// Where the system does not give each app folders of its own (Linux, and macOS without a sandbox), it lies in one
    /// named after the app: its bundle identifier, or else the file name of the program. Two programs that are to share
    /// a cache name its folder themselves.
    /// - Parameters:
    ///   - name: The cache's name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    ///   - place: Where it is kept.
    /// - Returns: Its path, for ``init(at:transport:configuration:)``.
    /// - Throws: `StoreError` for a name that is none; what the system says if the folder cannot be made.
    public static func folder(named name: String = "Tiles", in place: Place = .support) throws -> String {
        let name = try SourceName(name).description
        #if canImport(Darwin)
        let directory: FileManager.SearchPathDirectory =
            place == .support ? .applicationSupportDirectory : .cachesDirectory
        var base = try FileManager.default.url(
            for: directory, in: .userDomainMask, appropriateFor: nil, create: true)
        #if os(macOS)
        // Without a sandbox this folder is the same for all programs of a user.
        if ProcessInfo.processInfo.environment["APP_SANDBOX_CONTAINER_ID"] == nil {
            base.appendPathComponent(programName(), isDirectory: true)
        }
        #endif
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
        let folder = path(
            named: name, in: place, environment: ProcessInfo.processInfo.environment, home: NSHomeDirectory(),
            program: programName())
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        return folder
        #endif
    }

    /// A program's own folder among those for the data or the caches of all programs of a user.
    ///
    /// https://specifications.freedesktop.org/basedir-spec/latest/: a path that is empty or relative counts as none.
    static func path(
        named name: String, in place: Place, environment: [String: String], home: String, program: String
    ) -> String {
        func absolute(_ name: String) -> String? { environment[name].flatMap { $0.hasPrefix("/") ? $0 : nil } }
        let home = absolute("HOME") ?? home
        let base =
            switch place {
            case .support: absolute("XDG_DATA_HOME") ?? home + "/.local/share"
            case .caches: absolute("XDG_CACHE_HOME") ?? home + "/.cache"
            }
        return "\(base)/\(program)/\(name)"
    }

    /// The app's name as that of a folder: the bundle identifier, else the program's file name.
    static func programName(
        bundle: String? = Bundle.main.bundleIdentifier, program: String = CommandLine.arguments.first ?? ""
    ) -> String {
        let given = bundle ?? program.split(separator: "/").last.map(String.init) ?? ""
        let allowed = Set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        let name = String(given.prefix(128).map { allowed.contains($0) ? $0 : "-" })
        // Nothing but dots would be another folder.
        return name.contains { $0 != "." } ? name : "swift-tile-cache"
    }
}
