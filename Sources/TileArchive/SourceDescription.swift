public import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What is known of a cache's source besides its tiles: the map's name, who is to be named, its layers.
///
/// Kept in `sources/NAME.json` in the cache's folder, as a JSON object that looks like PMTiles' metadata. Imports write
/// it and exports read it; it is no part of the manifest, and deleting it loses nothing else.
public struct SourceDescription: Sendable {
    private let cache: String
    private let source: SourceName
    private static let largest = 8 << 20

    /// Names the description of a source in a cache's folder.
    public init(cache: String, source: SourceName) {
        self.cache = cache
        self.source = source
    }

    private var name: String { "\(source).json" }

    /// What is known; empty where nothing is, or the file is none of ours.
    ///
    /// - Throws: ``ArchiveError`` where the folder or the file cannot be read.
    public func read() throws -> ArchiveMetadata {
        guard let folder = try FolderHandle.open(cache)?.subfolder("sources") else { return ArchiveMetadata() }
        switch folder.read(name, limit: Self.largest) {
        case .bytes(let data): return ArchiveMetadata(sourceJSON: data)
        // Who merges into it would write it anew without what it says.
        case .refused(let why): throw ArchiveError(.io, "cannot read \(folder.path)/\(name): \(why)")
        case .absent, .link, .notAFile, .tooLarge: return ArchiveMetadata()
        }
    }

    /// Adds what an archive says: its words replace older ones, except that all attributions are kept.
    ///
    /// - Throws: ``ArchiveError`` where the file cannot be written.
    public func merge(_ news: ArchiveMetadata) throws {
        guard try merged(with: news) != nil else { return }
        guard let root = try FolderHandle.open(cache) else {
            throw ArchiveError(.notFound, "there is no cache at \(cache)")
        }
        let (rights, owner) = (root.rightsOfNewFiles, root.ownerOfNewFiles)
        let folder = try root.makeSubfolder("sources", rights: rights, owner: owner)
        // Two imports at once would each write what they have read without what the other one adds.
        try folder.whileLocked {
            // A process that was killed while it wrote has left its part.
            for name in try folder.names() where name.hasPrefix(".") && name.hasSuffix(".part") { folder.remove(name) }
            guard let merged = try merged(with: news) else { return }
            try write(merged, in: folder, rights: rights, owner: owner)
        }
    }

    /// What is known, and what an archive adds to it; `nil` if that is nothing.
    private func merged(with news: ArchiveMetadata) throws -> ArchiveMetadata? {
        var merged = try read()
        let old = merged
        merged.name = news.name ?? merged.name
        merged.description = news.description ?? merged.description
        if let more = news.attribution, !more.isEmpty {
            let known = merged.attribution ?? ""
            merged.attribution =
                known.isEmpty || more.contains(known) ? more : known.contains(more) ? known : "\(known), \(more)"
        }
        merged.bounds = news.bounds ?? merged.bounds
        merged.center = news.center ?? merged.center
        merged.take(news.others)
        // Regions are the manifest's business.
        merged.regions = []
        return merged != old ? merged : nil
    }

    private func write(
        _ metadata: ArchiveMetadata, in folder: FolderHandle, rights: mode_t, owner: FolderHandle.Owner?
    ) throws {
        let data = metadata.sourceJSON
        // What could not be read again would be lost with the next import.
        guard data.count <= Self.largest else {
            throw ArchiveError(
                .invalidValue,
                "what the archives say of source \(source) comes to \(data.count) bytes, more than \(Self.largest): it is "
                    + "not kept, and the tiles are not concerned")
        }
        let temporary = ".\(UInt64.random(in: .min ... .max)).part"
        try folder.write(data, as: temporary, thenTo: folder, name: name, rights: rights, owner: owner)
    }
}

extension ArchiveMetadata {
    /// What is known of a source as a JSON object with a newline.
    package var sourceJSON: Data {
        var members = pmtilesMembers
        if let box = bounds { members.append(JSON.Member("bounds", .string(box.description))) }
        if let center {
            members.append(JSON.Member("center", .string("\(center.longitude),\(center.latitude),\(center.zoom)")))
        }
        return Data((JSON.object(members).text + "\n").utf8)
    }

    /// Reads such an object; what is none says nothing.
    package init(sourceJSON data: Data) {
        self = JSON(data)?.members.map { ArchiveMetadata(json: $0) } ?? ArchiveMetadata()
    }
}
