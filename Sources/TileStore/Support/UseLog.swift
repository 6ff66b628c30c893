/// A use that has not been written down: of a key, while it had a certain blob.
struct PendingUse: Hashable {
    var key: PackedKey
    /// Some bytes of the blob's digest; 0 without a body.
    var digestPrefix: UInt32

    init(key: PackedKey, blob: BlobDigest?) {
        self.key = key
        digestPrefix = blob.map { UInt32(truncatingIfNeeded: $0.c) | 1 } ?? 0
    }

    @inline(__always)
    var mark: UInt64 {
        let kind = UInt64(key.source) << 16 ^ UInt64(key.variant) << 48 ^ UInt64(digestPrefix)
        return (key.position ^ kind) &* 0x9FB2_1C65_1E98_DF25
    }

    func hash(into hasher: inout Hasher) { hasher.combine(mark) }
}

/// The uses of one stripe, oldest first.
///
/// Of equal ones the last counts. They are all of one set of tables: those of others are forgotten.
///
/// A table of fixed size finds most earlier uses of the same key, which then give way without any hashing of the rest.
struct UseLog {
    private static var most: Int { 8192 }
    private var items: [PendingUse] = []
    private var origin = OfTables.none(())
    private var places: [UInt32] = []
    private static let given = PendingUse(key: PackedKey(position: .max, source: 0, variant: 0), blob: nil)

    var isEmpty: Bool { items.isEmpty }

    /// Adds a use; `true` if it is the first.
    @inline(__always)
    mutating func note(_ use: PendingUse, in tables: Tables) -> Bool {
        if !origin.isOf(tables) { self = UseLog(of: tables) }
        if items.last == use { return false }
        if items.count >= Self.most || places.isEmpty { makeRoom() }
        let place = Int(truncatingIfNeeded: use.mark >> 52)
        let earlier = Int(places[place])
        if earlier < items.count, items[earlier] == use { items[earlier] = Self.given }
        places[place] = UInt32(truncatingIfNeeded: items.count)
        items.append(use)
        return items.count == 1
    }

    init() {}

    private init(of tables: Tables) { origin = OfTables((), tables) }

    private mutating func makeRoom() {
        if places.isEmpty {
            places = [UInt32](repeating: .max, count: 4096)
            items.reserveCapacity(Self.most)
        }
        guard items.count >= Self.most else { return }
        items.removeAll { $0 == Self.given }
        if items.count > Self.most / 2 { items = Array(Self.lastOfEqual(items).suffix(Self.most / 2)) }
        for i in places.indices { places[i] = .max }
        for (i, use) in items.enumerated() { places[Int(truncatingIfNeeded: use.mark >> 52)] = UInt32(i) }
    }

    /// Takes all uses out, equal ones perhaps more than once.
    mutating func take() -> OfTables<[PendingUse]> {
        defer { self = UseLog() }
        let uses = items.filter { $0 != Self.given }
        return origin.map { uses }
    }

    /// Replaces the uses, as when the numbers of names have changed.
    mutating func replace(_ uses: [PendingUse], in tables: Tables) {
        self = UseLog(of: tables)
        for use in uses { _ = note(use, in: tables) }
    }

    /// Keeps the last of equal uses, in order.
    static func lastOfEqual(_ uses: [PendingUse]) -> [PendingUse] {
        var seen = Set<PendingUse>(minimumCapacity: uses.count)
        var kept: [PendingUse] = []
        for use in uses.reversed() where seen.insert(use).inserted { kept.append(use) }
        kept.reverse()
        return kept
    }
}
