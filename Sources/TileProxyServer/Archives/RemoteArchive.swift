import CacheEngine
import HTTPCaching
import NIOCore
import TileArchive
import TileCache
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
final class RemoteArchive: Sendable {
    /// Why a part cannot be had.
    struct Trouble: Error {
        let failure: TileFill.Failure
    }

    /// What became of reading a part: the version that it is of.
    typealias Reading = Result<ArchiveVersion, Trouble>

    /// What a source says of itself.
    struct Description: Sendable {
        fileprivate let version: String
        let configuration: SourceConfiguration
        let map: MapDescription
    }

    private struct State {
        var version: ArchiveVersion?
        var description: Description?
    }

    private let given: SourceConfiguration
    /// The beginning of all its keys; without anything that may be secret.
    private let folder: String
    /// Its beginning, which tells the version.
    let start: ArchivePart
    private let state = Locked(State())
    /// Parts that are being read, each once for all who need it.
    private let readings = Flights<String, Reading>()

    /// - Parameter given: A source that names an archive at a server.
    init(_ given: SourceConfiguration) {
        self.given = given
        // A query may say which file it is.
        let traits = [SourceConfiguration.withoutSecrets(given.template)] + given.plainValues
        let place = Array(traits.joined(separator: "\n").utf8).withUnsafeBytes { BlobDigest(hashing: $0) }
        folder = "pmtiles/\(place.description.prefix(16))"
        let name = given.name.description
        start = ArchivePart(
            key: TileKey(source: given.name, resource: ResourceAddress(uncheckedPath: folder + "/start")),
            question: RangeQuestion(first: ArchiveVersion.startLength)
        ) { ArchiveVersion.objection(toStart: $0, length: $1, of: name) }
    }

    /// The version that was opened last.
    var latest: ArchiveVersion? { state.withLock { $0.version } }

    private func key(_ version: ArchiveVersion, _ bytes: Range<Int64>) -> TileKey {
        TileKey(
            source: given.name,
            resource: ResourceAddress(uncheckedPath: "\(folder)/\(version.id)/\(bytes.lowerBound)+\(bytes.count)"))
    }

    private func part(
        _ version: ArchiveVersion, _ bytes: Range<Int64>, _ objection: @escaping @Sendable (Data) -> String?
    ) -> ArchivePart {
        ArchivePart(
            key: key(version, bytes),
            question: RangeQuestion(bytes, of: version.file, mark: version.id, isRepeated: false)
        ) { data, _ in objection(data) }
    }

    // MARK: Versions

    /// The version that a beginning is of, as it is stored or was brought just now.
    ///
    /// - Parameter finish: Called once on the loop, at once if the version is known.
    func version(
        of start: Candidate, on tiles: TileLoop, _ finish: @escaping @Sendable (Reading) -> Void
    ) {
        let (metadata, name) = (start.entry.metadata, given.name.description)
        guard let length = metadata.fileMark.flatMap({ Int64($0) }), length > 0 else {
            return finish(.failure(unusable("an archive's beginning without its length")))
        }
        let file = FileVersion(
            tag: metadata.etag, lastModified: metadata.lastModified.map { HTTPDate($0) }, length: length)
        // What was brought or stored was hashed for it.
        guard let digest = start.entry.blob else {
            return finish(.failure(unusable("an archive's beginning whose bytes are not known")))
        }
        let id = Self.id(file, digest)
        if let latest, latest.id == id { return finish(.success(latest)) }
        read("start \(id)", of: start, on: tiles, finish) { [state] data in
            let version = try ArchiveVersion(data, id: id, file: file, of: name)
            state.withLock { $0.version = version }
            return version
        }
    }

    /// Its name in keys: 128 bits of what a server says of it, and of its header and root directory themselves.
    private static func id(_ file: FileVersion, _ start: BlobDigest) -> String {
        // Beside a strong tag the date says nothing: servers that stand for one another often have other ones.
        let date = file.isStrong ? nil : file.lastModified?.description
        let traits = [file.tag ?? "", date ?? "", String(file.length), start.description]
        return Array(traits.joined(separator: "\n").utf8).withUnsafeBytes {
            String(BlobDigest(hashing: $0).description.prefix(32))
        }
    }

    private func unusable(_ words: String) -> Trouble {
        Trouble(failure: .unusable(.body, words, host: given.name.description))
    }

    // MARK: Parts

    /// Has a version learn one of its directories.
    ///
    /// - Parameter finish: Called once, on the loop. It waits for nobody's leaving: a directory is for all tiles below it.
    func learn(
        _ leaf: ArchiveVersion.Leaf, of version: ArchiveVersion, _ source: ServedSource, on tiles: TileLoop,
        _ finish: @escaping @Sendable (Reading) -> Void
    ) {
        if let objection = version.objection(to: leaf) { return finish(.failure(unusable(objection))) }
        let loop = tiles.loop
        let hear: @Sendable (Reading) -> Void = { reading in loop.execute { finish(reading) } }
        guard let place = readings.follow("leaf \(version.id) \(leaf.number)", .visible, nil, hear: hear) else {
            return
        }
        guard let ticket = place.leads else { return }
        let part = part(version, leaf.bytes) { version.objection(to: $0, as: leaf) }
        let (readings, bound) = (readings, NIOLoopBound(tiles, eventLoop: loop))
        TileExchange(tiles, source, part.key, onlyIfCached: false, subject: .part(part)) { outcome in
            switch outcome {
            case .refused(_, _, let failure): readings.land(ticket, .failure(Trouble(failure: failure ?? .none)))
            case .tile(let candidate, _, _, _):
                self.decode(candidate, on: bound.value) { data in
                    try version.take(data, as: leaf)
                    return version
                } then: {
                    readings.land(ticket, $0)
                }
            }
        }.start()
    }

    /// Reads what is stored, or was brought; once for all who need it at a time.
    private func read(
        _ name: String, of candidate: Candidate, on tiles: TileLoop, _ finish: @escaping @Sendable (Reading) -> Void,
        _ body: @escaping @Sendable (Data) throws -> ArchiveVersion
    ) {
        let (loop, readings) = (tiles.loop, readings)
        let hear: @Sendable (Reading) -> Void = { reading in loop.execute { finish(reading) } }
        guard let ticket = readings.follow(name, .visible, nil, hear: hear)?.leads else { return }
        decode(candidate, on: tiles, body) { readings.land(ticket, $0) }
    }

    /// Decompresses and parses on a thread that may take its time.
    private func decode(
        _ candidate: Candidate, on tiles: TileLoop, _ body: @escaping @Sendable (Data) throws -> ArchiveVersion,
        then finish: @escaping @Sendable (Reading) -> Void
    ) {
        Self.read(candidate, on: tiles) { [self] data -> Reading in
            do { return .success(try body(data.get())) } catch { return .failure(unusable("\(error)")) }
        } then: {
            finish($0)
        }
    }

    /// Reads bytes from their file on a thread that may wait, and computes with them on one that may take its time.
    private static func read<T: Sendable>(
        _ candidate: Candidate, on tiles: TileLoop, _ body: @escaping @Sendable (Result<Data, any Error>) -> T,
        then finish: @escaping @Sendable (T) -> Void
    ) {
        let (worker, loop) = (tiles.service.worker, tiles.loop)
        if case .memory(let data) = candidate.body {
            return worker.compute(on: loop) {
                body(.success(data))
            } then: {
                finish($0)
            }
        }
        worker.read(on: loop) { _ in
            try candidate.body.data() ?? Data()
        } then: { read in
            worker.compute(on: loop) {
                body(read)
            } then: {
                finish($0)
            }
        }
    }

    // MARK: Descriptions

    /// What the archive says of itself, read if need be; `nil` if it cannot be had and never could.
    ///
    /// - Parameter finish: Called once, on the loop.
    func describe(_ source: ServedSource, on tiles: TileLoop, _ finish: @escaping @Sendable (Description?) -> Void) {
        let bound = NIOLoopBound(tiles, eventLoop: tiles.loop)
        let known: @Sendable () -> Description? = { self.state.withLock { $0.description } }
        TileExchange(tiles, source, start.key, onlyIfCached: false, subject: .part(start)) { outcome in
            guard case .tile(let candidate, _, _, _) = outcome else { return finish(known()) }
            self.version(of: candidate, on: bound.value) { reading in
                guard case .success(let version) = reading else { return finish(known()) }
                if let known = known(), known.version == version.id { return finish(known) }
                self.describe(version, source, on: bound.value, finish)
            }
        }.start()
    }

    private func describe(
        _ version: ArchiveVersion, _ source: ServedSource, on tiles: TileLoop,
        _ finish: @escaping @Sendable (Description?) -> Void
    ) {
        let given = given
        let take: @Sendable (Data?) -> Description = { metadata in
            let (configuration, map) = version.described(given, metadata)
            let description = Description(version: version.id, configuration: configuration, map: map)
            self.state.withLock { $0.description = description }
            return description
        }
        guard let bytes = version.metadataBytes else { return finish(take(nil)) }
        let part = part(version, bytes) { _ in nil }
        let bound = NIOLoopBound(tiles, eventLoop: tiles.loop)
        TileExchange(tiles, source, part.key, onlyIfCached: false, subject: .part(part)) { outcome in
            // Without its metadata the header still says much; it is asked for again next time.
            guard case .tile(let candidate, _, _, _) = outcome else {
                let (configuration, map) = version.described(given, nil)
                return finish(Description(version: version.id, configuration: configuration, map: map))
            }
            Self.read(candidate, on: bound.value) { data -> Description in
                if case .success(let metadata) = data { take(metadata) } else { take(nil) }
            } then: {
                finish($0)
            }
        }.start()
    }
}

extension TileFill.Failure {
    /// Nothing was asked, and there is nothing.
    fileprivate static var none: Self {
        .noAnswer(TileFill.NoAnswer(OriginSetback(.unasked, .unreachable), mayPass: false))
    }
}
