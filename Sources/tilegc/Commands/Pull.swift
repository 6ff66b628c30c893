import ArgumentParser
import Foundation
import HTTPTypes
import TileArchive
import TileSets
import TileStore

/// `tilegc pull`.
struct Pull: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "pull",
        abstract: "Brings a source of a cache, made if it does not exist, to what a published set has.",
        discussion: """
            FROM is the folder of a set, or its http(s) URL. Only what is not there is fetched, and every byte is checked by \
            its name before it counts. An interrupted pull goes on where it was when it is run again. Afterwards the source has \
            the tiles of the set and no others; they are pinned, and fresh until the next pull unless the set says otherwise.

            A server without encryption can be anybody's: http:// needs --expect, with the root that 'tilegc publish' has told.

            Exit status 1 means that the set is damaged, or not the expected one; the cache is as it was then.
            """)

    @Argument(help: ArgumentHelp("The set's folder, or its http(s) URL.", valueName: "from"))
    var from: String

    @OptionGroup var cache: CacheArgument

    @Option(
        help: ArgumentHelp("The source in the cache that the tiles belong to.", valueName: "name"),
        transform: ArgumentValues.source)
    var source: SourceName

    @Option(
        help: ArgumentHelp("The root that the set must have: 64 hexadecimal digits.", valueName: "digest"),
        transform: ArgumentValues.digest)
    var expect: BlobDigest?

    @Option(help: ArgumentHelp("Pin what is pulled under this name (default: the source's).", valueName: "name"))
    var region: String?

    @Option(
        help: ArgumentHelp(
            "Refuse a set with more tiles (default: 10000000): each takes an entry of the cache.", valueName: "n"),
        transform: ArgumentValues.count)
    var maxTiles: Int = 10_000_000

    @Option(help: ArgumentHelp("Files fetched at a time.", valueName: "n"), transform: ArgumentValues.count)
    var concurrency: Int = 8

    @Option(
        help: ArgumentHelp(
            "A header field for every request; its value comes from an environment variable or a file. Repeatable.",
            valueName: "NAME=ENV:VAR|NAME=FILE:PATH"),
        transform: HeaderOption.init)
    var header: [HeaderOption] = []

    @OptionGroup var report: ReportOptions

    func validate() throws {
        if from.isEmpty { throw ValidationError("FROM is empty: name a set's folder or its URL") }
        guard (1...64).contains(concurrency) else {
            throw ValidationError("--concurrency \(concurrency): expected 1 to 64")
        }
    }

    func run() async throws {
        Interrupt.watch()
        guard HTTPSetFetcher.isURL(from) else {
            guard !SetReader.isDocument(from) || from.hasSuffix("/\(SetDocument.path)") || from == SetDocument.path
            else {
                throw Failure(.usage, "\(from): the latest version is pulled; others are published anew before")
            }
            return try await pull(FolderSetFetcher(DiskFileSystem(location: SetReader.folder(of: from))))
        }
        let fetcher = try HTTPSetFetcher(
            from, fields: HTTPFields(try header.map { try $0.field() }), connections: concurrency)
        do {
            guard !fetcher.isPlain || expect != nil else {
                throw Failure(
                    .usage,
                    "\(fetcher.place) is not encrypted, so that anybody on the way can change the set: say with --expect "
                        + "which root it has, or use https")
            }
            try await stoppable { try await pull(fetcher) }
        } catch {
            await fetcher.shutdown()
            throw error
        }
        await fetcher.shutdown()
    }

    /// Cancels what hangs at a server when the user wants to stop.
    private func stoppable(_ body: @escaping @Sendable () async throws -> Void) async throws {
        let work = Task { try await body() }
        let watcher = Task {
            while !Interrupt.isRequested { try await Task.sleep(for: .milliseconds(50)) }
            work.cancel()
        }
        defer { watcher.cancel() }
        try await work.value
    }

    private func pull(_ fetcher: some SetFetcher) async throws {
        do {
            // Before there is a cache: a mistyped place leaves none behind.
            let offer = try await SetPuller.offer(of: fetcher, expecting: expect)
            let store = try cache.open(createIfMissing: true)
            var puller = SetPuller(store: store, source: source, from: fetcher, now: EntryReport.now)
            puller.expected = expect
            puller.region = region ?? source.description
            puller.concurrency = concurrency
            puller.mostTiles = maxTiles
            puller.wantsStop = { Interrupt.isRequested }
            let progress = Locked(Progress())
            puller.progress = { done, total, left in
                progress.withLock { $0.show(done, of: total, "blobs, \(Figure.size(left)) left") }
            }
            let result: PullReport
            do { result = try await puller.pull(offer) } catch {
                progress.withLock { $0.clear() }
                try store.close()
                throw error
            }
            progress.withLock { $0.clear() }
            var notDescribed: (any Error)?
            if !result.metadata.isEmpty {
                // The tiles are there whatever becomes of it.
                do {
                    try SourceDescription(cache: cache.cache, source: source)
                        .merge(ArchiveMetadata(setMembers: result.metadata))
                } catch { notDescribed = error }
            }
            try store.sync()
            try store.close()
            if let notDescribed { throw notDescribed }
            try write(result)
        } catch let error as SetError { throw Failure(error) } catch let error as FileError {
            throw Failure(.inputOutput, "\(error)")
        }
    }

    private func write(_ result: PullReport) throws {
        let output = StandardOutput()
        if report.json {
            try output.line(
                .object([
                    ("tiles", .integer(result.tiles)), ("fetchedBlobs", .integer(result.fetchedBlobs)),
                    ("fetchedBytes", .integer(result.fetchedBytes)), ("unchanged", .integer(result.unchanged)),
                    ("removed", .integer(result.removed)), ("root", .optional(result.root)),
                    ("requests", .integer(result.requests)), ("delta", .bool(result.usedDelta)),
                ]))
        } else {
            try output.line(
                "Pulled \(Figure.count(result.tiles, "tile")): \(Figure.count(result.fetchedBlobs, "blob")) fetched "
                    + "(\(Figure.size(result.fetchedBytes))), \(Figure.count(result.unchanged)) unchanged, "
                    + "\(Figure.count(result.removed)) removed; root \(result.root.map { "\($0)" } ?? "")")
        }
        try output.finish()
    }
}

extension ArgumentValues {
    /// A SHA-256.
    static func digest(_ text: String) throws -> BlobDigest {
        guard let digest = BlobDigest(text.lowercased()) else {
            throw ValidationError("expected a SHA-256 of 64 hexadecimal digits")
        }
        return digest
    }
}
