public import Observation
public import TileCache

/// A region's download that SwiftUI watches.
///
/// ```swift
/// ProgressView(value: download.status.fraction)
/// Button("Download") { download.start() }
/// ```
/// It is the delegate of its ``RegionDownloader``: an app that needs a delegate of its own watches that instead.
@available(iOS 17, macOS 14, tvOS 17, watchOS 10, visionOS 1, *)
@MainActor @Observable
public final class ObservableDownload: RegionDownloaderDelegate {
    /// Where it stands.
    public private(set) var status: DownloadStatus
    /// What is downloaded, and how.
    public let downloader: RegionDownloader

    /// Watches a downloader from now on.
    public init(_ downloader: RegionDownloader) {
        self.downloader = downloader
        status = DownloadStatus(tiles: downloader.tileCount)
        downloader.delegate = self
    }

    /// Begins, or begins again after an end; does nothing while it is under way.
    public func start() {
        guard !status.isUnderWay else { return }
        status.start()
        let (downloader, number) = (self.downloader, downloader.begin())
        // An error comes to the delegate too.
        Task { _ = try? await downloader.carryOut(number) }
    }

    /// Begins no further tiles until ``resume()``.
    public func pause() {
        status.pause()
        downloader.pause()
    }

    /// Goes on after ``pause()``.
    public func resume() {
        status.resume()
        downloader.resume()
    }

    /// Ends it; what has come stays.
    public func cancel() { downloader.cancel() }

    /// Tries again what is missing; does nothing before an end.
    public func retryFailed() {
        guard case .finished = status.phase else { return }
        status.start()
        downloader.retryFailed()
    }

    // MARK: What the downloader tells

    /// Takes the progress over.
    public func regionDownloader(_ downloader: RegionDownloader, isAt progress: DownloadProgress) {
        status.advance(to: progress)
    }

    /// Takes over what the download waits for.
    public func regionDownloader(_ downloader: RegionDownloader, isWaitingBecause reason: TileCacheError) {
        status.wait(reason)
    }

    /// Takes the end over.
    public func regionDownloader(_ downloader: RegionDownloader, didFinish report: DownloadReport) {
        status.finish(report)
    }

    /// Takes over why it could not begin.
    public func regionDownloader(_ downloader: RegionDownloader, didFail error: any Error) { status.fail(error) }
}
