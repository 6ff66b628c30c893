import Foundation
import TileStore

/// A small cache with one of everything, and times that do not depend on the day.
enum Sample {
    static let stored = Timestamp(seconds: 1_577_836_800)  // 2020-01-01
    static let past = Timestamp(seconds: 1_580_515_200)  // 2020-02-01
    static let future = Timestamp(seconds: 4_102_444_800)  // 2100-01-01

    static func metadata(
        _ response: ResponseFields = ResponseFields(mediaType: "image/png"), etag: String? = nil,
        expires: Timestamp = future
    ) -> TileMetadata {
        TileMetadata(response: response, etag: etag, storedAt: stored, expires: expires)
    }

    /// Makes the cache: tiles of two sources around Greenwich, shared bytes, an absent tile, a style, a pinned region.
    static func make(at path: String) throws {
        let store = try TileStore(at: path)
        for x in 0..<4 {
            for y in 0..<4 {
                let data = (x + y).isMultiple(of: 2) ? Pyramid.ocean : Pyramid.magic + Data("tile \(x) \(y)".utf8)
                try store.put(
                    data, for: TileKey(source: "osm", z: 2, x: x, y: y),
                    metadata: metadata(expires: x == 0 ? past : future))
            }
        }
        var styled = metadata(
            ResponseFields(
                mediaType: "application/json", staleWhileRevalidate: 60, staleIfError: 3600, mustRevalidate: true,
                headers: [
                    .init(name: "Content-Language", value: "en"), .init(name: "X-Odd", value: "a\"b\\c\u{1}\u{1B}[31m"),
                ]), etag: "W/\"v\\1\"")
        styled.lastModified = stored
        styled.date = stored
        styled.initialAge = 5
        try store.put(Data("{}".utf8), for: TileKey("styles:light/style.json"), metadata: styled)
        try store.put(
            nil, for: TileKey("osm/3/0/0"), metadata: metadata(ResponseFields(status: 404), expires: past))
        try store.put(
            Data("vector".utf8), for: TileKey("terrain/5/3/4@2x.pbf"),
            metadata: metadata(ResponseFields(mediaType: "application/vnd.mapbox-vector-tile"), etag: "\"t\""))
        let span = try TileSpan(zoom: 2, columns: 3...3, rows: 3...3)
        try store.pin(try PinnedRegion(name: "corner", source: SourceName("osm"), spans: [span]))
        try store.close()
    }
}
