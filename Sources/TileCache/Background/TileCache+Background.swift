import TileStore

extension TileCache {
    /// Goes on with the region download whose requests the system has carried while the app was suspended or gone.
    ///
    /// In the app's delegate, with a cache that is opened where the app starts:
    /// ```swift
    /// func application(_ app: UIApplication, handleEventsForBackgroundURLSession session: String, completionHandler: @escaping () -> Void) {
    ///     Task { _ = try? await cache.handleEvents(ofBackgroundSession: session, from: [source]); completionHandler() }
    /// }
    /// ```
    /// A cache that is suspended (``TileCache/suspend()``) stores nothing: resume it before, and suspend it again afterwards if the
    /// app is still in the background.
    ///
    /// Returns when what has come is stored and the system has been given its next tasks; the download goes on. An app that
    /// a person has opened need not call it: resuming what ``downloads()`` lists takes up the same tasks.
    /// - Parameters:
    ///   - identifier: The session's, as the system names it.
    ///   - sources: Where tiles come from, with the secrets of today; the one by the name of the region's source is used.
    /// - Returns: The download; `nil` if the session is none of this cache's, or its region is complete or was removed, whose
    ///   tasks are then ended.
    /// - Throws: ``TileCacheError`` with ``TileCacheError/Code/invalidSource`` if none of the sources is the region's, and otherwise
    ///   as ``downloads()`` and ``UnfinishedDownload/resume(from:options:)``.
    @discardableResult
    public func handleEvents(
        ofBackgroundSession identifier: String, from sources: [TileSource]
    ) async throws -> TileDownload? {
        if isClosed { throw TileCacheError.closed }
        guard identifier.hasPrefix(sessionPrefix), let sessions = configuration.backgroundSessions else { return nil }
        let all = try await downloads()
        guard let unfinished = all.first(where: { session(ofRegion: $0.region.name) == identifier }) else {
            if backgrounds.withLock({ $0[identifier] }) == nil {
                sessions.open(identifier, tell: { _ in }).invalidate()
            }
            return nil
        }
        guard let source = sources.first(where: { $0.name == unfinished.region.source }) else {
            throw TileCacheError(
                .invalidSource,
                "the tiles of region \(unfinished.region.name) come from source \(unfinished.region.source), which is not among "
                    + "those given")
        }
        var options = unfinished.options
        options.inBackground = true
        guard let background = background(ofRegion: unfinished.region.name) else { return nil }
        let download = try await {
            background.begin()
            defer { background.end() }
            return try await unfinished.resume(from: source, options: options)
        }()
        await background.rest()
        return download
    }

    /// The session that carries a region's requests, opened if it is not; `nil` where there are none.
    func background(ofRegion name: String) -> BackgroundTransport? {
        guard let sessions = configuration.backgroundSessions else { return nil }
        let identifier = session(ofRegion: name)
        return backgrounds.withLock { backgrounds in
            if let known = backgrounds[identifier] { return known }
            // Opening it now, only to give it up, would end tasks that a later process wants.
            guard !isClosed else { return nil }
            let new = BackgroundTransport(identifier, sessions)
            backgrounds[identifier] = new
            return new
        }
    }

    /// The identifier of a region's session: the same in each process, and another one in each cache.
    func session(ofRegion name: String) -> String {
        "\(sessionPrefix)\(store.fingerprint(of: "background session\n" + name))"
    }

    private var sessionPrefix: String { "swift-tile-cache.\(store.fingerprint(of: "background sessions"))." }
}
