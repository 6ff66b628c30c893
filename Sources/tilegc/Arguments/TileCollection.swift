import TileArchive
import TileSets
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What a path of tiles names: a cache, or an archive, sets included; open for reading.
enum TileCollection {
    case cache(TileStore)
    case archive(any ArchiveReader)

    /// Opens what is at a path.
    ///
    /// - Throws: `Failure`, `StoreError`, `ArchiveError`.
    init(_ path: String) throws {
        let format = ArchiveFormat(path: path)
        // A version of a set is behind its file's name, a template such as tiles/{z}/{x}/{-y}.png behind its folder's.
        if format != .set, !Self.exists(Self.place(of: path)) {
            throw Failure(
                .noInput, "there is no \(path): name a cache, a published set, an archive or a folder of tiles")
        }
        if Self.exists("\(path)/tilecache.json") {
            self = .cache(try CacheArgument.openForReading(path))
            return
        }
        let isSet = format == .folder && Self.holdsSet(path)
        let reader: any ArchiveReader = isSet ? try SetReader(path) : try format.open(path)
        if let folder = reader as? FolderReader, try !folder.holdsZooms() {
            throw Failure(
                .noInput,
                "\(path) is no cache, no set and no folder of tiles: expected tilecache.json, set.json, or zoom folders named 0 to 28 "
                    + "with x/y.ext in them")
        }
        for warning in reader.warnings { Message.print(warning.printable) }
        self = .archive(reader)
    }

    /// The archive at a path; `nil` where a cache is, or nothing that is an archive.
    ///
    /// - Throws: `ArchiveError` for an archive that cannot be opened.
    static func archive(at path: String) throws -> (any ArchiveReader)? {
        guard !path.isEmpty, !exists("\(path)/tilecache.json") else { return nil }
        if ArchiveFormat(path: path) == .folder, !holdsSet(path) {
            guard exists(place(of: path)), let folder = try? FolderReader(path), try folder.holdsZooms() else {
                return nil
            }
            return folder
        }
        guard case .archive(let reader) = try TileCollection(path) else { return nil }
        return reader
    }

    /// Whether something is there that is no cache; it is not opened.
    static func isArchive(_ path: String) -> Bool {
        !exists("\(path)/tilecache.json") && (ArchiveFormat(path: path) == .set || exists(place(of: path)))
    }

    /// The folder of a template; of all else the path itself.
    static func place(of path: String) -> String {
        guard ArchiveFormat(path: path) == .folder, !exists(path), let mark = path.firstIndex(of: "{") else {
            return path
        }
        return mark == path.startIndex ? "." : String(path[..<mark])
    }

    /// Whether two paths lead to one and the same file or folder.
    static func isSame(_ a: String, _ b: String) -> Bool {
        var (first, second) = (stat(), stat())
        return stat(place(of: a), &first) == 0 && stat(place(of: b), &second) == 0 && first.st_dev == second.st_dev
            && first.st_ino == second.st_ino
    }

    /// Whether a folder has a `set.json`, be it a link that leads nowhere: whoever opens it says what is wrong.
    private static func holdsSet(_ folder: String) -> Bool {
        var status = stat()
        return lstat("\(folder)/\(SetDocument.path)", &status) == 0
    }

    private static func exists(_ path: String) -> Bool {
        var status = stat()
        return !path.isEmpty && stat(path, &status) == 0
    }

    func close() throws { if case .cache(let store) = self { try store.close() } }
}
