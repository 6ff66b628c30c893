import CacheEngine
import HTTPCaching
import HTTPTypes
import TileCache
import TileCacheArchive
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What is asked of a source under a key.
enum TileSubject: Sendable {
    /// A tile with a URL of its own.
    case tile
    /// A part of an archive at a server (its beginning, a directory, its metadata), or a file of a published set.
    case part(ArchivePart)
    /// A tile of one version of an archive at a server.
    ///
    /// - Parameter isRepeated: Whether the archive has turned out to be another one already.
    case archived(RemoteArchive, ArchiveVersion, isRepeated: Bool)

    /// The part, if it is one.
    var part: ArchivePart? { if case .part(let part) = self { part } else { nil } }

    /// The version that a tile has to be of.
    var version: String? { if case .archived(_, let version, _) = self { version.id } else { nil } }

    /// What is stored, as it counts for this subject.
    ///
    /// What is of the very version that is asked for never changes, whatever its own answer said of its lifetime. A tile of another
    /// version is stale.
    func judged(_ lookup: Lookup, at now: HTTPDate) -> Lookup {
        guard case .found(let candidate) = lookup else { return lookup }
        switch self {
        case .tile: return lookup
        case .part(let part): return part.judged(candidate, at: now).map { .found($0) } ?? .miss
        case .archived(_, let version, _):
            let isOfVersion = candidate.entry.metadata.fileMark == version.id
            return .found(isOfVersion ? candidate.lasting(at: now) : candidate.replaced(at: now))
        }
    }

    /// What a tile's bytes are by its archive: media type, content coding, and what all of its tiles are; `nil` for what has fields.
    func content(of tile: Data) -> (type: String?, coding: String?, kind: TileKind)? {
        guard case .archived(_, let version, _) = self else { return nil }
        let (type, coding) = version.content(of: tile)
        return (type, coding, version.kind)
    }

    /// What is to be stored.
    func stored(_ record: AnswerRecord) -> AnswerRecord {
        if case .part(let part) = self { part.stored(record) } else { record }
    }

    /// The use of the engine, with room for what is asked for.
    func use(_ use: CacheUse) -> CacheUse {
        if case .part(let part) = self { part.use(use) } else { use }
    }
}
