/// How much the tables of a process can number.
///
/// Numbers in records have a fixed width. What would need a number beyond it is refused with an error before anything is
/// written; Docs/on-disk-format.md names the bounds.
package struct TableBounds: Sendable {
    /// Sources, and as many variants (a scale and a format): their numbers have 16 bits.
    package var names = Int(UInt16.max)
    /// Entries, and as many blobs: their slots have 27 bits.
    package var slots = Int(Segments<EntryRecord>.limit)

    /// Resources that tables ever number: their numbers have 56 bits.
    static let resources: UInt64 = 1 << 56
    /// Numbers of sets of response fields are below this.
    static let sets = UInt32.max

    package init() {}
}

/// A bound that tables have come to.
enum TableBound: Equatable {
    case sources, variants, resources, sets, entries, blobs

    private func text(_ bounds: TableBounds) -> String {
        switch self {
        case .sources: "\(bounds.names) sources"
        case .variants: "\(bounds.names) variants (a scale and a format)"
        case .resources: "\(TableBounds.resources) resources"
        case .sets: "\(TableBounds.sets - 1) sets of response fields"
        case .entries: "\(bounds.slots) entries"
        case .blobs: "\(bounds.slots) blobs"
        }
    }

    private var advice: String {
        switch self {
        case .sources, .variants, .resources, .sets:
            "remove what is not needed, compact the cache (tilegc compact) and open it anew"
        case .entries, .blobs: "lower the cache's limits (tilegc limit), or divide it"
        }
    }

    /// Why something cannot be stored.
    func error(storing what: String, in location: String, _ bounds: TableBounds) -> StoreError {
        StoreError(
            .tooMany,
            "\(what) cannot be stored: \(location) has \(text(bounds)), the most that there can be; \(advice)")
    }

    /// Why a manifest cannot be read.
    func loadingError(_ location: String, _ bounds: TableBounds) -> StoreError {
        StoreError(
            .tooMany,
            "the manifest of \(location) has more than \(text(bounds)), the most that this version can read; use the version "
                + "that wrote it to remove some and to compact it, or remove the folder and let it fill again")
    }
}
