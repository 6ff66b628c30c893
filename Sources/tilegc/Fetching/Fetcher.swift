import TileCache
import TileCacheNIO
import TileStore

/// A cache with a connection to the world, for one command.
struct Fetcher {
    let cache: TileCache
    private let store: TileStore
    private let transport: AsyncHTTPClientTransport

    init(store: TileStore, transport: AsyncHTTPClientTransport, configuration: TileCacheConfiguration) {
        self.store = store
        self.transport = transport
        cache = TileCache(store: store, transport: transport, configuration: configuration)
    }

    /// Starts a download, shows it until it is over, closes everything, and reports.
    ///
    /// - Parameters:
    ///   - unknown: How many lines of a list name a tile that is not cached.
    ///   - changes: Where to write which tiles have changed.
    /// - Throws: ``Failure`` with the status that the outcome deserves.
    func run(
        _ options: ReportOptions, unknown: Int? = nil, _ changes: ChangedKeys? = nil,
        _ start: (TileCache) async throws -> TileDownload
    ) async throws {
        let result: DownloadReport
        do {
            result = try await watch(try await start(cache), changes)
            try changes?.finish()
            // Who is told that it is done may cut the power.
            try await cache.onFileThread { [store] in try store.sync() }
        } catch {
            // The first error is the one to tell.
            do { try await close() } catch let second { Message.print("closing the cache: \(second)") }
            if let error = error as? TileCacheError { throw Failure(.usage, error.message) }
            throw error
        }
        try await close()
        try DownloadFigures(report: result, unknown: unknown, changed: changes?.count).write(options)
    }

    /// Shows a download's progress until it is over; an interrupt ends it.
    ///
    /// Says at once what goes wrong: the first tile that fails, and each time why the server is waited for.
    private func watch(_ download: TileDownload, _ changes: ChangedKeys?) async throws -> DownloadReport {
        var progress = Progress()
        // A server that hangs makes no progress, and the user wants to stop all the same.
        let watcher = Task {
            while !Interrupt.isRequested { try await Task.sleep(for: .milliseconds(50)) }
            download.cancel()
        }
        defer { watcher.cancel() }
        var (toldFailure, toldObstacle) = (false, false)
        for await state in download.updates() {
            do { try changes?.write() } catch {
                // What changes from now on would be told to nobody.
                download.cancel()
                _ = await download.report()
                throw error
            }
            if !toldFailure, let failure = download.firstFailure {
                Message.print(failure.error.message)
                toldFailure = true
            }
            if state.isWaiting, !toldObstacle, let obstacle = download.obstacle {
                Message.print("\(obstacle.message); waiting for the server")
            }
            toldObstacle = state.isWaiting
            progress.show(state.done - state.failed, of: state.total, "tiles, \(Figure.size(state.bytes))")
        }
        progress.clear()
        return await download.report()
    }

    /// Ends the command's use of cache and network.
    func close() async throws {
        await transport.shutdown()
        try cache.close()
    }
}

/// What `seed` and `revalidate` report.
struct DownloadFigures {
    let report: DownloadReport
    /// How many lines of a list name a tile that is not cached.
    var unknown: Int?
    /// How many tiles have other bytes now.
    var changed: Int?

    private var progress: DownloadProgress { report.progress }

    private var missing: Int { report.shortfalls.reduce(0) { $0 + $1.tiles } }

    /// The fields that scripts rely on: `tiles` is the sum of the five that follow it; `missing` counts `failed`,
    /// `pending` and what was evicted or removed meanwhile.
    var json: JSON {
        .object(
            figures + UnknownLines.fields(unknown) + (changed.map { [("changed", .integer($0))] } ?? []))
    }

    private var figures: [(String, JSON)] {
        [
            ("tiles", .integer(progress.done)), ("fetched", .integer(progress.fetched)),
            ("revalidated", .integer(progress.revalidated)), ("unchanged", .integer(progress.unchanged)),
            ("negative", .integer(progress.absent)), ("failed", .integer(progress.failed)),
            ("bytes", .integer(progress.bytes)), ("pending", .integer(progress.pending)),
            ("present", report.present.map { .integer($0) } ?? .null), ("missing", .integer(missing)),
            ("complete", .bool(report.verdict == .complete)),
            (
                "reasons",
                .array(
                    report.shortfalls.map {
                        .object([("tiles", .integer($0.tiles)), ("reason", .string($0.reason.message))])
                    })
            ),
        ]
    }

    var text: String {
        "\(Figure.count(progress.done, "tile")): \(Figure.count(progress.fetched)) fetched "
            + "(\(Figure.size(progress.bytes))), \(Figure.count(progress.revalidated)) revalidated, "
            + "\(Figure.count(progress.unchanged)) unchanged, \(Figure.count(progress.absent)) absent, "
            + "\(Figure.count(progress.failed)) failed"
            + (changed.map { "; \(Figure.count($0)) changed" } ?? "")
            + (progress.pending > 0 ? "; \(Figure.count(progress.pending)) not had" : "") + UnknownLines.words(unknown)
    }

    /// Writes the report, then ends with the status that the outcome deserves.
    func write(_ options: ReportOptions) throws {
        let output = StandardOutput()
        try options.json ? output.line(json) : output.line(text)
        try output.finish()
        if report.wasCancelled {
            throw Failure(.interrupted, "interrupted: what was fetched so far stays; run it again for the rest")
        }
        guard report.verdict != .complete else { return }
        for failure in report.failures.prefix(5) { Message.print(failure.error.message) }
        for shortfall in report.shortfalls {
            Message.print("\(Figure.count(shortfall.tiles, "tile")) missing: \(shortfall.reason.message)")
        }
        throw Failure(
            .found,
            "\(Figure.count(missing, "tile")) of \(Figure.count(progress.total)) missing; run it again for the rest")
    }
}
