#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Where an archive may be written: anywhere but in the folder of a tile cache, or among the objects of a published set.
///
/// There it would take the place of the cache's own files, or lie among its blobs.
package enum OutputPlace {
    /// Refuses a path in a cache's folder, or that folder itself, and one in a set's folders of objects.
    ///
    /// - Parameters:
    ///   - folder: Where something is to be written; it need not exist.
    ///   - path: What the user has named, for the message.
    /// - Throws: ``ArchiveError`` with ``ArchiveError/Code/invalidValue``.
    package static func check(_ folder: String, for path: String) throws {
        guard var place = existing(folder) else { return }
        while true {
            var status = stat()
            let marker = place == "/" ? "/tilecache.json" : place + "/tilecache.json"
            if stat(marker, &status) == 0 {
                throw ArchiveError(
                    .invalidValue,
                    "\(path) lies in the tile cache \(place), whose files it could replace: name a place outside of it")
            }
            guard place != "/", let slash = place.lastIndex(of: "/") else { return }
            if ["/objects", "/staging"].contains(place[slash...]), isSet(String(place[..<slash])) {
                throw ArchiveError(
                    .invalidValue,
                    "\(path) lies among the objects of the published set \(place[..<slash]): name a place outside of it"
                )
            }
            place = slash == place.startIndex ? "/" : String(place[..<slash])
        }
    }

    /// Refuses the same for a folder of tiles, and the folder of a published set.
    ///
    /// - Throws: ``ArchiveError`` with ``ArchiveError/Code/invalidValue``.
    static func checkFolder(_ path: String) throws {
        try check(path, for: path)
        guard !isSet(path) else {
            throw ArchiveError(
                .invalidValue,
                "\(path) is the folder of a published set, and tiles would lie between its files: name another")
        }
    }

    private static func isSet(_ folder: String) -> Bool {
        var status = stat()
        return stat("\(folder)/set.json", &status) == 0 && stat("\(folder)/objects", &status) == 0
    }

    /// The deepest folder on the way that is there, without links; `nil` where the system does not say.
    private static func existing(_ path: String) -> String? {
        var path = path.isEmpty ? "." : path
        while true {
            if let found = realpath(path, nil) {
                defer { free(found) }
                return String(cString: found)
            }
            while path.count > 1, path.hasSuffix("/") { path.removeLast() }
            guard path != "/", path != "." else { return nil }
            guard let slash = path.lastIndex(of: "/") else {
                path = "."
                continue
            }
            path = slash == path.startIndex ? "/" : String(path[..<slash])
        }
    }
}
