import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// What a cache shows of itself, and whether it is still the cache that it was the last time.
struct WatchedReading {
    /// What happened since the last reading.
    enum Event: String {
        case compacted, reloaded, damaged, replaced

        /// For people.
        var text: String {
            switch self {
            case .compacted: "the manifest was compacted"
            case .reloaded: "fell behind and read the manifest anew: puts and evictions in between are not known"
            case .damaged: "the manifest has damaged lines; see tilegc verify"
            case .replaced: "another cache has taken the folder's place"
            }
        }
    }

    var reading: StoreWatch.Reading
    var events: [Event]
}

/// A cache that is looked at now and then, by its path.
final class WatchedCache {
    private let argument: CacheArgument
    private var store: TileStore
    private var watch: StoreWatch
    private var identity: Identity

    /// The folder and the file that makes it a cache.
    private struct Identity: Equatable {
        private let numbers: [UInt64]

        /// `nil` where there is no cache.
        init?(_ path: String) {
            var numbers: [UInt64] = []
            for path in [path, path + "/tilecache.json"] {
                var status = stat()
                guard stat(path, &status) == 0 else { return nil }
                numbers += [UInt64(truncatingIfNeeded: status.st_dev), UInt64(truncatingIfNeeded: status.st_ino)]
            }
            self.numbers = numbers
        }
    }

    init(_ argument: CacheArgument) throws {
        self.argument = argument
        // Looked at before it is opened: what takes its place in between shows as another one.
        let before = Identity(argument.cache)
        store = try argument.openForReading()
        watch = StoreWatch(store)
        guard let identity = before ?? Identity(argument.cache) else { throw Self.removed(argument.cache) }
        self.identity = identity
    }

    private static func removed(_ path: String) -> Failure {
        Failure(.noInput, "\(path) was removed while it was watched")
    }

    func look() throws -> WatchedReading {
        guard let now = Identity(argument.cache) else { throw Self.removed(argument.cache) }
        var events: [WatchedReading.Event] = []
        if now != identity {
            let fresh = try argument.openForReading()
            try store.close()
            (store, watch, identity) = (fresh, StoreWatch(fresh), now)
            events.append(.replaced)
        }
        var reading = try watch.look()
        // What was done in the other one, and in this one before it was opened, is not known.
        if events == [.replaced] { (reading.puts, reading.evictedBlobs) = (nil, nil) }
        events += reading.events.compactMap { WatchedReading.Event(rawValue: $0.rawValue) }
        return WatchedReading(reading: reading, events: events)
    }
}
