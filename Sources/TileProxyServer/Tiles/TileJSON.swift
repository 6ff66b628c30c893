import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The description of a source as TileJSON 3.0.0 has it.
///
/// https://github.com/mapbox/tilejson-spec/tree/master/3.0.0
struct TileJSON: Encodable {
    /// A layer of vector tiles, as an archive's metadata has it; the cache does not look into tiles.
    struct Layer: Encodable, Hashable, Sendable {
        var id: String
        var fields: [String: String]
        var description: String?
        var minzoom: Int?
        var maxzoom: Int?
    }

    var tilejson = "3.0.0"
    var scheme = "xyz"
    var name: String
    var tiles: [String]
    var minzoom: Int
    var maxzoom: Int
    var bounds: [Double]
    var attribution: String?
    var description: String?
    var center: [Double]?
    /// Not of the specification, but what MBTiles servers say: the extension of the tiles.
    var format: String?
    var vectorLayers: [Layer]?

    private enum CodingKeys: String, CodingKey {
        case tilejson, scheme, name, tiles, minzoom, maxzoom, bounds, attribution, description, center, format
        case vectorLayers = "vector_layers"
    }

    /// Describes a source.
    ///
    /// - Parameters:
    ///   - format: The extension of its tiles.
    ///   - base: How clients reach this server.
    ///   - routeName: Its name in routes, if that is another one.
    ///   - map: What more is known of the map.
    init(
        _ source: SourceConfiguration, format: [UInt8]?, base: String, routeName: String? = nil,
        _ map: MapDescription = MapDescription()
    ) {
        let ending = format.map { "." + String(decoding: $0, as: UTF8.self) } ?? ""
        name = source.title ?? source.name.description
        tiles = ["\(base)/tiles/\(routeName ?? source.name.description)/{z}/{x}/{y}\(ending)"]
        minzoom = source.servedZooms.lowerBound
        maxzoom = source.servedZooms.upperBound
        let box = source.box
        bounds = [
            box?.west ?? -180, max(box?.south ?? -90, -85.051129), box?.east ?? 180, min(box?.north ?? 90, 85.051129),
        ]
        attribution = source.attribution
        description = map.text
        center = map.center
        self.format = map.format
        vectorLayers = source.servedKind == .vector ? map.layers : nil
    }

    /// As JSON.
    var text: String { JSONText.of(self) }
}

/// What an archive says of its map, beyond what an operator can say.
struct MapDescription: Hashable, Sendable {
    /// What it shows.
    var text: String?
    /// Where to look first: longitude, latitude, zoom.
    var center: [Double]?
    /// The extension of its tiles.
    var format: String?
    var layers: [TileJSON.Layer] = []
}

/// JSON for people and programs: keys in order, slashes as they are.
enum JSONText {
    static func of(_ value: some Encodable) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Numbers are finite and texts are texts, so there is nothing that could fail.
        encoder.nonConformingFloatEncodingStrategy = .convertToString(
            positiveInfinity: "inf", negativeInfinity: "-inf", nan: "nan")
        guard let data = try? encoder.encode(value) else { return "{}" }
        return String(decoding: data, as: UTF8.self)
    }
}
