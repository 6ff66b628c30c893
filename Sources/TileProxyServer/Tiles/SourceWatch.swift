import TileStore

/// Has sources read anew whose files were replaced: published sets, and archives with `watch`.
///
/// A source goes on with what it has open until the new file is open, and if that cannot be read.
final class SourceWatch: Sendable {
    /// How long after one look the next one is taken.
    static let pause = Duration.seconds(2)

    private let table: @Sendable () -> SourceTable
    private let replace: @Sendable (ServedSource) throws -> Bool
    private let report: @Sendable (_ source: String, _ reason: String) -> Void
    /// What was seen in the place of files that may still be written, by their paths.
    private let seen = Locked<[String: WatchedFile.Identity]>([:])

    /// - Parameters:
    ///   - table: The sources as they are.
    ///   - replace: Opens a source anew and puts it in place; `false` if the sources are other ones by now.
    ///   - report: Tells an operator why one could not be opened.
    init(
        _ table: @escaping @Sendable () -> SourceTable, replace: @escaping @Sendable (ServedSource) throws -> Bool,
        report: @escaping @Sendable (_ source: String, _ reason: String) -> Void
    ) {
        (self.table, self.replace, self.report) = (table, replace, report)
    }

    /// Looks at all files once.
    ///
    /// Blocks; one call at a time.
    func look() {
        for source in table().sources {
            guard let watched = source.watched else { continue }
            let identity = WatchedFile.Identity(watched.path)
            let before = seen.withLock { seen in
                defer { seen[watched.path] = identity }
                return seen[watched.path]
            }
            guard identity != watched.identity else { continue }
            guard let identity else {
                report(source.name.description, "\(watched.path) is gone; what was in it is served")
                continue
            }
            // One that is being written changes again.
            guard watched.appearsWhole || identity == before else { continue }
            do { _ = try replace(source) } catch { report(source.name.description, "\(error)") }
        }
    }
}
