package import CacheEngine
import HTTPCaching
package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// The parts of a PMTiles archive at a server, as entries of a cache.
///
/// Its beginning is one like any response, with the server's word on how long it is fresh. All others are of one version: its
/// directories lie under a name that has the version's in it, and its tiles, under their own keys, note it.
package struct ArchiveParts: Sendable {
    /// Its beginning, which tells the version.
    package let start: ArchivePart
    private let source: SourceName
    private let folder: String

    /// - Parameter identity: What tells the archive from others that the source may name; nothing that is secret.
    package init(of source: SourceName, identity: String) {
        self.source = source
        folder = "pmtiles/\(identity)"
        start = ArchivePart(
            key: TileKey(source: source, resource: ResourceAddress(uncheckedPath: folder + "/start")),
            question: FileQuestion(first: ArchiveVersion.startLength)
        ) { ArchiveVersion.objection(toStart: $0, length: $1, of: source.description) }
    }

    /// A directory of a version.
    package func leaf(_ leaf: ArchiveVersion.Leaf, of version: ArchiveVersion) -> ArchivePart {
        part(of: version, leaf.bytes) { version.objection(to: $0, as: leaf) }
    }

    /// A version's section of metadata.
    package func metadata(_ bytes: Range<Int64>, of version: ArchiveVersion) -> ArchivePart {
        part(of: version, bytes) { _ in nil }
    }

    private func part(
        of version: ArchiveVersion, _ bytes: Range<Int64>, _ objection: @escaping @Sendable (Data) -> String?
    ) -> ArchivePart {
        ArchivePart(
            key: TileKey(
                source: source,
                resource: ResourceAddress(uncheckedPath: "\(folder)/\(version.id)/\(bytes.lowerBound)+\(bytes.count)")),
            question: FileQuestion(bytes, of: version.file, mark: version.id, isRepeated: false)
        ) { data, _ in objection(data) }
    }
}

/// Which version of an archive a beginning is of.
package struct ArchiveOpening: Sendable {
    /// The version's name in keys: 128 bits of what a server says of it, and of its header and root directory themselves.
    package let id: String
    private let file: FileVersion

    /// - Parameters:
    ///   - metadata: What is stored with the beginning.
    ///   - start: The name of its bytes.
    /// - Returns: `nil` if the file's length was not stored with it.
    package init?(_ metadata: TileMetadata, _ start: BlobDigest) {
        guard let length = metadata.fileMark.flatMap({ Int64($0) }), length > 0 else { return nil }
        file = FileVersion(
            tag: metadata.etag, lastModified: metadata.lastModified.map { HTTPDate($0) }, length: length)
        // Beside a strong tag the date says nothing: servers that stand for one another often have other ones.
        let date = file.isStrong ? nil : file.lastModified?.description
        let traits = [file.tag ?? "", date ?? "", String(length), start.description]
        id = Array(traits.joined(separator: "\n").utf8).withUnsafeBytes {
            String(BlobDigest(hashing: $0).description.prefix(32))
        }
    }

    /// Reads the beginning.
    ///
    /// - Throws: ``ArchiveError``.
    package func version(_ start: Data, of source: SourceName) throws -> ArchiveVersion {
        try ArchiveVersion(start, id: id, file: file, of: source.description)
    }
}
