/// What a map view in SwiftUI shows, and what of it has to change when its values do.
struct MapViewState: Sendable {
    private var cache: CacheIdentity?
    /// The region that the view and the binding agree on.
    private var region: MapRegion?
    /// Whether the view is being moved by the binding: what it says meanwhile is not news.
    private(set) var isMoving = false

    /// Whether the view has to be given another cache.
    mutating func switches(to cache: CacheIdentity) -> Bool {
        defer { self.cache = cache }
        return self.cache != cache
    }

    /// Whether the view has to be moved to a region; call ``moved()`` when that is done.
    mutating func moves(to region: MapRegion) -> Bool {
        guard region != self.region, region.isValid else { return false }
        self.region = region
        isMoving = true
        return true
    }

    /// The view has been moved.
    mutating func moved() { isMoving = false }

    /// Whether the binding has to be told of a region that the view shows.
    mutating func tells(_ region: MapRegion) -> Bool {
        guard !isMoving, region != self.region else { return false }
        self.region = region
        return true
    }
}

/// Tells caches apart: objects by what they are, values by their kind alone.
enum CacheIdentity: Hashable, Sendable {
    case object(ObjectIdentifier)
    case value(ObjectIdentifier)

    init(_ cache: any MapCaching) {
        let kind: Any.Type = type(of: cache)
        self = kind is AnyClass ? .object(ObjectIdentifier(cache as AnyObject)) : .value(ObjectIdentifier(kind))
    }
}
