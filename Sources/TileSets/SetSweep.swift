package import TileStore

/// Removes objects of a published set's folder that no root names.
package struct SetSweep {
    private let now: Timestamp
    /// What was written so lately stays: a puller may have read an older `set.json`.
    static let age: Int64 = 86_400

    package init(now: Timestamp) { self.now = now }

    /// Sweeps, under the publisher's lock.
    ///
    /// - Parameter isStopped: Asked between two objects.
    /// - Returns: How many objects were removed, and their bytes.
    /// - Throws: ``SetError``, `FileError`. A root or a chunk that cannot be read ends it before anything is removed.
    package func run(_ files: any FileSystem, unless isStopped: () -> Bool) throws -> (objects: Int, bytes: Int) {
        let place = "\(files.location)/\(SetDocument.path)"
        let absent = SetError(.notASet, "there is no \(place): name the folder of a published set")
        // Nothing is made in a folder that is no set.
        guard try files.wholeFile(SetDocument.path, limit: SetBounds.document) != nil else { throw absent }
        let folder = try SetFolder(files)
        guard let document = try folder.document() else { throw absent }
        var named = Set(document.deltas.map { SetPaths.list($0.digest) })
        var chunks = Set<BlobDigest>()
        let roots = [(document.root, document.rootLength)] + document.kept.map { ($0.root, $0.length) }
        for (digest, length) in roots {
            named.insert(SetPaths.list(digest))
            for item in try SetRoot(try list(digest, length, folder)).items where chunks.insert(item.digest).inserted {
                named.insert(SetPaths.list(item.digest))
                for tile in try SetList.decode(try list(item.digest, item.length, folder), of: item) {
                    named.insert(SetPaths.blob(tile.blob))
                }
                if isStopped() { return (0, 0) }
            }
        }
        return try folder.sweep(
            keeping: named, writtenBefore: now.adding(seconds: -Self.age), unless: isStopped)
    }

    private func list(_ digest: BlobDigest, _ length: Int, _ folder: SetFolder) throws -> [UInt8] {
        guard let bytes = try folder.list(digest, length: length) else {
            throw SetError(
                .damaged,
                "\(folder.location)/\(SetPaths.list(digest)) is missing or damaged, so it cannot be told what is needed: "
                    + "nothing was removed; remove the file if it is there and publish again, which writes it anew or gives up the "
                    + "former version that needs it")
        }
        return bytes
    }
}
