import Foundation

/// What every row needs to know of a run.
struct Bench {
    /// Where rows write.
    var workspace: Workspace
    /// Whether to measure less, for a look and not for a figure.
    var quick: Bool
    /// How many entries the large cache has.
    var entries: Int
    /// The tiles.
    var tiles: TileSet

    /// How many rounds to run.
    var rounds: Int { quick ? 3 : 11 }

    /// Caches of all peers, with the names of their samples; each name is added to the path.
    func openPeers(at path: String) throws -> [(name: String, peer: any PeerCache)] {
        try Peer.installed.map { ($0.rawValue, try $0.open(at: path + "." + $0.rawValue)) }
    }

    /// One number for a run in earnest, another for a quick one.
    func scaled(_ full: Int, quick few: Int) -> Int { quick ? few : full }
}

/// The rows by name, in the order in which they are measured: those that delete come last.
enum RowName: String, CaseIterable {
    case diskHit = "disk-hit"
    case memoryHit = "memory-hit"
    case cacheHit = "cache-hit"
    case putNew = "put-new"
    case putDuplicate = "put-duplicate"
    case resident
    case open
    case bytes
    case evict
    case readersWhileEvicting = "readers-while-evicting"
}

extension Bench {
    /// Measures one row.
    func figures(of row: RowName) throws -> [Figure] {
        switch row {
        case .diskHit: try diskHit()
        case .memoryHit: try memoryHit()
        case .cacheHit: try cacheHit()
        case .putNew: try putNew()
        case .putDuplicate: try putDuplicate()
        case .evict: try evict()
        case .readersWhileEvicting: try readersWhileEvicting()
        case .resident: try resident()
        case .open: try openLarge()
        case .bytes: try bytesOnDisk()
        }
    }
}
