package import TileStore

/// Where a set's files are had from: a folder, or a server.
package protocol SetFetcher: Sendable {
    /// Names the place, for messages: a path, or a URL without secrets.
    var place: String { get }

    /// Fetches a file of the set.
    ///
    /// - Parameters:
    ///   - path: `set.json`, or the path of an object.
    ///   - limit: So many bytes at most.
    /// - Returns: `nil` where there is no such file.
    /// - Throws: ``SetError``.
    func fetch(_ path: String, limit: Int) async throws -> [UInt8]?
}

/// A set in a folder: on this disk, a share or a memory stick.
package struct FolderSetFetcher: SetFetcher {
    private let files: any FileSystem
    private let worker: Worker
    package var place: String { files.location }

    /// Reads from a folder.
    package init(_ files: any FileSystem) {
        self.files = files
        worker = Worker("set-folder")
    }

    package func fetch(_ path: String, limit: Int) async throws -> [UInt8]? {
        try await worker.run {
            do { return try files.wholeFile(path, limit: limit) } catch let error as FileError {
                throw SetError(.unreachable, "the set cannot be read: \(error)")
            }
        }
    }
}
