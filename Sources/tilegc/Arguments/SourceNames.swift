import TileStore

extension TileStore {
    /// What to say if the cache has nothing of a source: its name may be misspelt.
    ///
    /// Costs a pass over all entries.
    /// - Returns: `nil` if there is something of it.
    func complaint(about source: SourceName) throws -> String? {
        let names = try statistics().sources.map(\.name.description)
        guard !names.contains(source.description) else { return nil }
        let most = 10
        let shown = names.prefix(most).joined(separator: ", ")
        let has =
            names.isEmpty
            ? "it is empty" : "it has \(shown)" + (names.count > most ? " and \(names.count - most) more" : "")
        return "the cache has nothing of a source named \(source); \(has)"
    }
}
