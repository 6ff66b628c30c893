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
    /// - Returns: Its path, for ``init(at:transport:configuration:)-(String,_,_)``.
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
        let folder = base.appendingPathComponent(name, isDirectory: true)
        try make(folder, in: place)
        return folder.path
        #else
        let folder = path(
            named: name, in: place, environment: ProcessInfo.processInfo.environment, home: NSHomeDirectory(),
            program: programName())
        try make(URL(fileURLWithPath: folder, isDirectory: true), in: place)
        return folder
        #endif
    }

    /// The folder of a cache that an app shares with its extensions: in the container of an app group.
    ///
    /// Made if it is missing. The system ends an app that holds a file's lock in such a container when it is suspended: see
    /// ``TileCache/suspend()``. Not run on an Apple platform yet.
    /// - Parameters:
    ///   - group: The group's identifier, such as `group.org.example.maps`.
    ///   - name: The cache's name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    ///   - place: Where in the container it is kept. What is said of ``Place`` holds: `support` is excluded from backups, `caches`
    ///     may be emptied by the system.
    /// - Returns: Its path, for ``init(at:transport:configuration:)-(String,_,_)``.
    /// - Throws: `StoreError` for a name that is none, and if the app has no such group: it says what to do. Always where there
    ///   are no app groups, as on Linux.
    public static func folder(
        inAppGroup group: String, named name: String = "Tiles", in place: Place = .support
    ) throws -> String {
        #if canImport(Darwin)
        let container = FileManager.default.containerURL(forSecurityApplicationGroupIdentifier: group)
        #else
        let container: URL? = nil
        #endif
        return try folder(inContainer: container, of: group, named: name, in: place)
    }

    /// - Parameter container: The group's; `nil` if the system knows none.
    static func folder(inContainer container: URL?, of group: String, named name: String, in place: Place) throws
        -> String
    {
        let name = try SourceName(name).description
        guard let container else { throw StoreError(.invalidValue, noGroup(group)) }
        let base = place == .support ? "Library/Application Support" : "Library/Caches"
        let folder = container.appendingPathComponent(base, isDirectory: true)
            .appendingPathComponent(name, isDirectory: true)
        // macOS names a container for every group, also for one that the app has no part in.
        do { try make(folder, in: place) } catch {
            throw StoreError(.invalidValue, "\(noGroup(group)) (\(folder.path): \(error.localizedDescription))")
        }
        return folder.path
    }

    private static func noGroup(_ group: String) -> String {
        #if canImport(Darwin)
        "the app group \(group) cannot be used: add it under App Groups (com.apple.security.application-groups) to the app and to "
            + "each extension that opens the cache, and sign them with profiles that have it"
        #else
        "the app group \(group) cannot be used: this system has no app groups; use TileCache.folder(named:in:), or name a folder"
        #endif
    }

    /// Makes a cache's folder, if it is missing, with what the system is to know of it.
    private static func make(_ folder: URL, in place: Place) throws {
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        #if canImport(Darwin)
        guard place == .support else { return }
        // Tiles can be had again; and a map that runs in the background needs them while the device is locked.
        var marked = folder
        var values = URLResourceValues()
        values.isExcludedFromBackup = true
        try marked.setResourceValues(values)
        #if !os(macOS)
        try FileManager.default.setAttributes(
            [.protectionKey: FileProtectionType.completeUntilFirstUserAuthentication], ofItemAtPath: folder.path)
        #endif
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
