import TileCache
import TileCacheNIO
import TileStore

/// A cache with a connection to the world, for one command.
struct Fetcher {
    let cache: TileCache
    private let transport: AsyncHTTPClientTransport

    init(store: TileStore, transport: AsyncHTTPClientTransport, configuration: TileCacheConfiguration) {
        self.transport = transport
        cache = TileCache(store: store, transport: transport, configuration: configuration)
    }

    /// Shows a download's progress until it is over; an interrupt ends it.
    func watch(_ download: TileDownload) async -> DownloadReport {
        var progress = Progress()
        // A server that hangs makes no progress, and the user wants to stop all the same.
        let watcher = Task {
            while !Interrupt.isRequested { try await Task.sleep(for: .milliseconds(50)) }
            download.cancel()
        }
        defer { watcher.cancel() }
        for await state in download.updates() {
            progress.show(state.done, of: state.total, "tiles, \(Figure.size(state.bytes))")
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

    private var progress: DownloadProgress { report.progress }

    /// The fields that scripts rely on: `tiles` is the sum of the five that follow it.
    var json: JSON {
        .object([
            ("tiles", .integer(progress.done)), ("fetched", .integer(progress.fetched)),
            ("revalidated", .integer(progress.revalidated)), ("unchanged", .integer(progress.unchanged)),
            ("negative", .integer(progress.absent)), ("failed", .integer(progress.failed)),
            ("bytes", .integer(progress.bytes)),
        ])
    }

    var text: String {
        "\(Figure.count(progress.done, "tile")): \(Figure.count(progress.fetched)) fetched "
            + "(\(Figure.size(progress.bytes))), \(Figure.count(progress.revalidated)) revalidated, "
            + "\(Figure.count(progress.unchanged)) unchanged, \(Figure.count(progress.absent)) absent, "
            + "\(Figure.count(progress.failed)) failed."
    }

    /// Writes the report, then ends with the status that the outcome deserves.
    func write(_ options: ReportOptions) throws {
        for failure in report.failures.prefix(5) { Message.print(failure.error.message) }
        if report.failures.count > 5 {
            Message.print("… and \(Figure.count(progress.failed - 5)) more tiles that could not be had")
        }
        let output = StandardOutput()
        try options.json ? output.line(json) : output.line(text)
        try output.finish()
        if let error = report.stoppedBy {
            throw Failure(.found, "given up, since nobody answers: \(error.message); run it again for the rest")
        }
        if report.wasCancelled {
            throw Failure(.interrupted, "interrupted: what was fetched so far stays; run it again for the rest")
        }
        if progress.failed > 0 {
            throw Failure(.found, "\(Figure.count(progress.failed, "tile")) could not be had; run it again for those")
        }
    }
}
