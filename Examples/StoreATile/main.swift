import Foundation
import TileStore

let store = try TileStore(at: "tiles")
let key = try TileKey(source: "world", z: 3, x: 4, y: 2)
let png = try Data(contentsOf: URL(fileURLWithPath: "Sample/world/3/4/2.png"))

let now = Timestamp(Date())
try store.put(png, for: key, metadata: TileMetadata(storedAt: now, expires: now.adding(seconds: 7 * 86_400)))

if let tile = try store.read(key) {
    print("\(key): \(tile.data?.count ?? 0) bytes, stale: \(tile.entry.metadata.isStale(at: now))")
}
try store.close()
