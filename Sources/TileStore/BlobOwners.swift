/// Which sources refer to each blob, as a walk over the entries finds it.
///
/// Takes 4 bytes for each slot of the blobs' table, and up to 33 more for each further source of a blob that more than two
/// share.
struct BlobOwners {
    /// No source has this number.
    private static let none = UInt16.max

    /// By slot: the first source that was found, and the second one.
    private var owners: [(first: UInt16, second: UInt16)] = []
    /// The third and later ones: a blob's slot, then a source.
    private var further: Set<UInt64> = []
    /// What was looked for last among them: neighbours in the table often have both in common.
    private var last = UInt64.max

    /// Makes room for so many slots.
    mutating func makeRoom(for count: UInt32) {
        let missing = Int(count) - owners.count
        guard missing > 0 else { return }
        owners.append(contentsOf: repeatElement((first: Self.none, second: Self.none), count: missing))
    }

    /// Notes that an entry of a source refers to a blob, and counts its bytes as exclusive or shared.
    @inline(__always)
    mutating func add(_ blob: UInt32, _ allocated: Int, of source: UInt16, to sources: inout [SourceStatistics]) {
        let known = owners[Int(blob)]
        if known.first == source || known.second == source { return }
        addNew(blob, allocated, of: source, to: &sources)
    }

    private mutating func addNew(
        _ blob: UInt32, _ allocated: Int, of source: UInt16, to sources: inout [SourceStatistics]
    ) {
        let first = owners[Int(blob)].first
        if first == Self.none {
            owners[Int(blob)].first = source
            sources[Int(source)].exclusiveBytes += allocated
            return
        }
        if owners[Int(blob)].second == Self.none {
            owners[Int(blob)].second = source
            // Another blob may have got the slot since the last slice of the walk, so this may be more than was added.
            sources[Int(first)].exclusiveBytes = max(0, sources[Int(first)].exclusiveBytes - allocated)
            sources[Int(first)].sharedBytes += allocated
        } else {
            let pair = UInt64(blob) << 16 | UInt64(source)
            guard pair != last else { return }
            last = pair
            guard further.insert(pair).inserted else { return }
        }
        sources[Int(source)].sharedBytes += allocated
    }
}
