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
    /// A layer of vector tiles; the cache does not look into them, so what it says of them is nothing.
    struct Layer: Encodable {
        var id: String
        var fields: [String: String]
    }

    var tilejson = "3.0.0"
    var scheme = "xyz"
    var name: String
    var tiles: [String]
    var minzoom: Int
    var maxzoom: Int
    var bounds: [Double]
    var attribution: String?
    var vectorLayers: [Layer]?

    private enum CodingKeys: String, CodingKey {
        case tilejson, scheme, name, tiles, minzoom, maxzoom, bounds, attribution
        case vectorLayers = "vector_layers"
    }

    /// Describes a source.
    ///
    /// - Parameters:
    ///   - format: The extension of its tiles.
    ///   - base: How clients reach this server.
    init(_ source: SourceConfiguration, format: [UInt8]?, base: String) {
        let ending = format.map { "." + String(decoding: $0, as: UTF8.self) } ?? ""
        name = source.title ?? source.name.description
        tiles = ["\(base)/tiles/\(source.name)/{z}/{x}/{y}\(ending)"]
        minzoom = source.servedZooms.lowerBound
        maxzoom = source.servedZooms.upperBound
        let box = source.box
        bounds = [
            box?.west ?? -180, max(box?.south ?? -90, -85.051129), box?.east ?? 180, min(box?.north ?? 90, 85.051129),
        ]
        attribution = source.attribution
        vectorLayers = source.kind == .vector ? [] : nil
    }

    /// As JSON.
    var text: String { JSONText.of(self) }
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
