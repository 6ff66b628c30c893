package import ObjectStorage
package import TileStore

/// What is in a fleet's bucket, listed a thousand objects at a time.
///
/// Proxies go on meanwhile: what is deleted just when one of them writes it anew is a miss, no more.
package struct BucketSweep: Sendable {
    package struct Figures: Hashable, Sendable {
        /// Tiles' objects, and their bytes.
        package var objects = 0
        package var bytes: Int64 = 0
        /// Those of them that were deleted, and that could not be.
        package var deleted = 0
        package var failed = 0
        /// Whether there may be more to delete.
        package var wasStopped = false

        package init() {}
    }

    private let client: S3Client
    private let names: ObjectNames
    private let source: SourceName?

    /// - Parameter source: Only tiles of sources of this name.
    package init(_ client: S3Client, _ names: ObjectNames, source: SourceName?) {
        (self.client, self.names, self.source) = (client, names, source)
    }

    /// How many pages without an object there may be one after the other.
    private static let mostEmptyPages = 100

    /// Whether the keys of a page are in the order of their bytes, behind those of the pages before.
    private static func isAscending(_ last: String, _ items: [S3Listing.Item]) -> Bool {
        var last = last
        for item in items {
            guard last.isEmpty || last.utf8.lexicographicallyPrecedes(item.key.utf8) else { return false }
            last = item.key
        }
        return true
    }

    /// Counts everything, and deletes what was written before a time.
    ///
    /// - Parameters:
    ///   - time: By the bucket's clock; `nil` to delete nothing.
    ///   - most: No more are deleted.
    ///   - isStopped: Asked before each page.
    /// - Throws: `S3Error`; what was deleted so far is.
    package func run(
        deletingBefore time: Timestamp?, most: Int = .max, unless isStopped: () -> Bool,
        progress: (Figures) -> Void = { _ in }
    ) async throws(S3Error) -> Figures {
        let prefix = source.map { names.tiles(ofSourcesNamed: $0) } ?? names.tiles
        var figures = Figures()
        var token: String?
        var last = ""
        var emptyPages = 0
        repeat {
            guard !isStopped() else {
                figures.wasStopped = true
                return figures
            }
            let page = try await client.send(.list(prefix: prefix, continuing: token))
            // A server that does not go on would be listed for ever.
            emptyPages = page.items.isEmpty ? emptyPages + 1 : 0
            guard page.next == nil || page.next != token, emptyPages <= Self.mostEmptyPages,
                Self.isAscending(last, page.items)
            else {
                throw S3Error(
                    .malformed, "the server's listing does not go on behind \"\(last)\"; nothing more is deleted")
            }
            last = page.items.last?.key ?? last
            // The names of other sources may begin so too, and other objects lie there.
            let tiles = page.items.filter { names.isTile($0.key, of: source) }
            figures.objects += tiles.count
            for item in tiles {
                let (sum, isTooMuch) = figures.bytes.addingReportingOverflow(item.size)
                figures.bytes = isTooMuch ? .max : sum
            }
            if let time {
                let old = tiles.filter { $0.modified.map { $0 < time } ?? false }.map(\.key)
                let keys = Array(old.prefix(most - figures.deleted))
                if !keys.isEmpty {
                    let failures = try await client.send(.deleteObjects(keys))
                    figures.failed += failures.count
                    figures.deleted += keys.count - failures.count
                }
                if keys.count < old.count {
                    figures.wasStopped = true
                    return figures
                }
            }
            progress(figures)
            token = page.next
        } while token != nil
        return figures
    }
}
