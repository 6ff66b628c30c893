#if canImport(os)
import os

/// Writes a cache's events to the system's log, and its requests and downloads as signposts for Instruments.
///
/// ```swift
/// configuration.onEvent = TileCacheLog(subsystem: "org.example.maps").record
/// ```
///
/// Trouble is logged as an error, all else for debugging. Texts are private, since they tell which places somebody has looked at.
/// Not run on an Apple platform yet.
public struct TileCacheLog: Sendable {
    private let log: OSLog

    /// Logs under a subsystem and a category.
    public init(subsystem: String, category: String = "tiles") { log = OSLog(subsystem: subsystem, category: category) }

    /// Writes an event down.
    @Sendable public func record(_ event: TileCacheEvent) {
        Logger(log).log(level: event.isTrouble ? .error : .debug, "\(event.description, privacy: .private)")
        switch event {
        case .requestBegan(let request):
            os_signpost(.begin, log: log, name: "request", signpostID: OSSignpostID(request.number))
        case .requestEnded(let request, .answered(let status, let bytes), _):
            os_signpost(
                .end, log: log, name: "request", signpostID: OSSignpostID(request.number), "%ld, %ld bytes", status,
                bytes)
        case .requestEnded(let request, .failed, _):
            os_signpost(.end, log: log, name: "request", signpostID: OSSignpostID(request.number), "no answer")
        case .downloadBegan(let download):
            os_signpost(
                .begin, log: log, name: "download", signpostID: OSSignpostID(download.number), "%ld tiles",
                download.tiles)
        case .downloadEnded(let download, let report):
            os_signpost(
                .end, log: log, name: "download", signpostID: OSSignpostID(download.number), "%ld done, %ld failed",
                report.progress.done, report.progress.failed)
        default: break
        }
    }
}
#endif
