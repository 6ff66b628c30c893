import CacheEngine
import NIOCore
import TileArchive
import TileCache
import TileCacheArchive
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A PMTiles archive at a server: which version of it is known, and how its parts are asked for.
///
/// What is stored counts: the archive's beginning is an entry like any other, with the server's word on how long it is fresh. Here
/// are only the versions that were made of it, so that none is made twice.
final class RemoteArchive: RemoteTiles {
    /// What became of reading a part: the version that it is of.
    typealias Reading = PartReader<ArchiveVersion>.Reading

    private struct Description {
        let version: String
        let configuration: SourceConfiguration
        let map: MapDescription
    }

    private struct State {
        var version: ArchiveVersion?
        var description: Description?
    }

    private let given: SourceConfiguration
    /// Its parts.
    let parts: ArchiveParts
    private let state = Locked(State())
    private let reader: PartReader<ArchiveVersion>

    /// - Parameter given: A source that names an archive at a server.
    init(_ given: SourceConfiguration) {
        self.given = given
        parts = ArchiveParts(of: given.name, identity: given.fileIdentity)
        reader = PartReader(of: given.name.description)
    }

    /// The version that was opened last.
    var latest: ArchiveVersion? { state.withLock { $0.version } }

    // MARK: Versions

    /// The version that a beginning is of, as it is stored or was brought just now.
    ///
    /// - Parameter finish: Called once on the loop, at once if the version is known.
    func version(
        of start: Candidate, on tiles: TileLoop, _ finish: @escaping @Sendable (Reading) -> Void
    ) {
        // What was brought or stored was hashed for it.
        guard let digest = start.entry.blob, let opening = ArchiveOpening(start.entry.metadata, digest) else {
            return finish(.failure(reader.unusable("an archive's beginning whose length or bytes are not known")))
        }
        if let latest, latest.id == opening.id { return finish(.success(latest)) }
        let (state, name) = (state, given.name)
        reader.read("start \(opening.id)", of: start, on: tiles) { data in
            let version = try opening.version(data, of: name)
            state.withLock { $0.version = version }
            return version
        } _: {
            finish($0)
        }
    }

    // MARK: Parts

    /// Has a version learn one of its directories.
    ///
    /// - Parameter finish: Called once, on the loop.
    func learn(
        _ leaf: ArchiveVersion.Leaf, of version: ArchiveVersion, _ source: ServedSource, on tiles: TileLoop,
        _ finish: @escaping @Sendable (Reading) -> Void
    ) {
        if let objection = version.objection(to: leaf) { return finish(.failure(reader.unusable(objection))) }
        let part = parts.leaf(leaf, of: version)
        reader.ask("leaf \(version.id) \(leaf.number)", part, of: source, on: tiles) { data in
            try version.take(data, as: leaf)
            return version
        } _: {
            finish($0)
        }
    }

    // MARK: Asking

    var versions: [SourceVersion] { [] }

    func question(
        _ key: TileKey, version: String?, of source: ServedSource, on tiles: TileLoop, onlyIfCached: Bool,
        _ finish: @escaping (TileExchange.Outcome) -> Void
    ) -> any TileAnswering {
        ArchiveExchange(StepsToTile(tiles, source, onlyIfCached: onlyIfCached, finish), self, key)
    }

    // MARK: Descriptions

    func describe(
        version: String?, of source: ServedSource, on tiles: TileLoop,
        _ finish: @escaping @Sendable (RemoteDescription) -> Void
    ) {
        let bound = NIOLoopBound(tiles, eventLoop: tiles.loop)
        let known: @Sendable () -> RemoteDescription = {
            self.state.withLock { $0.description }.map { .said($0.configuration, $0.map, nil, isWhole: true) }
                ?? .unknown
        }
        TileExchange(tiles, source, parts.start.key, onlyIfCached: false, subject: .part(parts.start)) { outcome in
            guard case .tile(let candidate, _, _, _) = outcome else { return finish(known()) }
            self.version(of: candidate, on: bound.value) { reading in
                guard case .success(let version) = reading else { return finish(known()) }
                let isKnown = self.state.withLock { $0.description?.version == version.id }
                if isKnown { return finish(known()) }
                self.describe(version, source, on: bound.value, finish)
            }
        }.start()
    }

    private func describe(
        _ version: ArchiveVersion, _ source: ServedSource, on tiles: TileLoop,
        _ finish: @escaping @Sendable (RemoteDescription) -> Void
    ) {
        let given = given
        let take: @Sendable (Data?) -> RemoteDescription = { metadata in
            let (configuration, map) = given.described(by: version.metadata(metadata), kind: version.kind)
            self.state.withLock {
                $0.description = Description(version: version.id, configuration: configuration, map: map)
            }
            return .said(configuration, map, nil, isWhole: true)
        }
        guard let bytes = version.metadataBytes else { return finish(take(nil)) }
        let part = parts.metadata(bytes, of: version)
        let bound = NIOLoopBound(tiles, eventLoop: tiles.loop)
        TileExchange(tiles, source, part.key, onlyIfCached: false, subject: .part(part)) { outcome in
            // Without its metadata the header still says much; it is asked for again next time.
            guard case .tile(let candidate, _, _, _) = outcome else {
                let (configuration, map) = given.described(by: version.metadata(nil), kind: version.kind)
                return finish(.said(configuration, map, nil, isWhole: false))
            }
            candidate.read(on: bound.value) { data in
                if case .success(let metadata) = data { take(metadata) } else { take(nil) }
            } then: {
                finish($0)
            }
        }.start()
    }
}
