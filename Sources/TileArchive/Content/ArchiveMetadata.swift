import ContentCoding
public import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What an archive says of itself.
///
/// What is not known here is kept and written again, so that a vector map's list of layers gets from one format into
/// the other.
public struct ArchiveMetadata: Sendable, Equatable {
    /// The map's name.
    public var name: String?
    /// What it shows.
    public var description: String?
    /// Who has to be named where it is shown, as HTML.
    public var attribution: String?
    /// The kind of tiles that it claims, as a file's extension: `png`, `jpg`, `webp`, `pbf`.
    public var tileFormat: String?
    /// The zooms that it claims.
    public var zooms: ClosedRange<Int>?
    /// The area that it claims.
    public var bounds: GeoBox?
    /// Where to look first: longitude, latitude, zoom.
    public var center: Center?
    /// Named regions that the cache it was made from kept pinned.
    public var regions: [ArchiveRegion] = []
    /// Everything else, by name.
    package var others: [JSON.Member] = []

    /// Where to look first.
    public struct Center: Sendable, Equatable {
        /// Degrees.
        public var longitude, latitude: Double
        /// The zoom.
        public var zoom: Int

        /// Makes a centre.
        public init(longitude: Double, latitude: Double, zoom: Int) {
            self.longitude = longitude
            self.latitude = latitude
            self.zoom = zoom
        }
    }

    /// Says nothing.
    public init() {}

    /// The name under which regions are kept in an archive's metadata.
    static let regionsName = "tilecache:regions"

    /// Reads the members of a JSON object, as PMTiles has them; takes strings where numbers are meant.
    init(json members: [JSON.Member]) { take(members) }

    /// How many statements are kept that are not understood here.
    static let mostOthers = 1000

    /// What describes one file and not the map: it would be wrong in the file that is written from the tiles.
    static let aboutTheFile: Set<String> = [
        "scheme", "compression", "filesize", "agg_tiles_hash", "antimeridian_adjusted_bounds",
    ]

    /// Takes statements over; of several with one name the last counts.
    ///
    /// Those that are not understood are kept among ``others``, up to ``mostOthers``.
    /// - Returns: How many were left out because they are too many.
    @discardableResult
    mutating func take(_ members: some Sequence<JSON.Member>) -> Int {
        var places: [String: Int] = [:]
        for (i, member) in others.enumerated() { places[member.name] = i }
        var leftOut = 0
        for member in members where !understand(member.name, member.value) {
            if Self.aboutTheFile.contains(member.name) { continue }
            if let place = places[member.name] {
                others[place].value = member.value
            } else if others.count < Self.mostOthers {
                places[member.name] = others.count
                others.append(member)
            } else {
                leftOut += 1
            }
        }
        return leftOut
    }

    /// Takes one statement over; `false` if it is none that is known here.
    private mutating func understand(_ name: String, _ value: JSON) -> Bool {
        let text = value.string
        switch name {
        case "name" where text != nil: self.name = text
        case "description" where text != nil: description = text
        case "attribution" where text != nil: attribution = text
        case "format" where text != nil: tileFormat = text.map { Self.format(of: $0) }
        case "minzoom": if let zoom = Self.zoom(value) { widen(from: zoom, to: max(zoom, zooms?.upperBound ?? zoom)) }
        case "maxzoom": if let zoom = Self.zoom(value) { widen(from: min(zoom, zooms?.lowerBound ?? zoom), to: zoom) }
        case "bounds": bounds = Self.numbers(value).flatMap { Self.box($0) }
        case "center": center = Self.numbers(value).flatMap { Self.center($0) }
        case Self.regionsName: regions = Self.regions(value)
        default: return false
        }
        return true
    }

    private mutating func widen(from low: Int, to high: Int) { zooms = low...max(low, high) }

    /// The extension for a claim, which may also be a media type.
    private static func format(of claim: String) -> String {
        let claim = claim.lowercased()
        guard claim.contains("/") else { return claim == "jpeg" ? "jpg" : claim == "mvt" ? "pbf" : claim }
        return TileContent.format(ofMediaType: claim)
    }

    private static func zoom(_ value: JSON) -> Int? {
        let zoom = value.integer ?? value.double.flatMap { Int(exactly: $0) } ?? value.string.flatMap { Int($0) }
        return zoom.flatMap { (0...31).contains($0) ? $0 : nil }
    }

    /// Numbers of a list, or of a text with commas.
    private static func numbers(_ value: JSON) -> [Double]? {
        if let values = value.array { return values.compactMap(\.double) }
        return value.string?.split(separator: ",").compactMap { part in Double(part.filter { $0 != " " }) }
    }

    /// A box, its edges brought into range: files with 180.0000001 are common.
    static func box(_ numbers: [Double]) -> GeoBox? {
        guard numbers.count == 4, numbers.allSatisfy(\.isFinite) else { return nil }
        func limited(_ value: Double, _ most: Double) -> Double { min(max(value, -most), most) }
        let box = (
            limited(numbers[0], 180), limited(numbers[1], 90), limited(numbers[2], 180), limited(numbers[3], 90)
        )
        // What is no box says nothing about the map, and the tiles themselves tell where they are.
        return try? GeoBox(west: box.0, south: box.1, east: box.2, north: box.3)
    }

    private static func center(_ numbers: [Double]) -> Center? {
        guard numbers.count >= 2, (-180...180).contains(numbers[0]), (-90...90).contains(numbers[1]) else { return nil }
        let zoom = numbers.count > 2 ? Int(exactly: numbers[2].rounded()) ?? 0 : 0
        return Center(longitude: numbers[0], latitude: numbers[1], zoom: min(max(zoom, 0), 31))
    }
}

/// A layer of vector tiles, as an archive's metadata describes it.
public struct VectorLayer: Sendable, Hashable {
    /// Its name in the tiles.
    public var id: String
    /// The names of its attributes, each with a word on what it holds, such as `Number`.
    public var fields: [String: String]
    /// What it is, for people.
    public var description: String?
    /// The first and the last zoom that it is in.
    public var minzoom, maxzoom: Int?
}

extension ArchiveMetadata {
    /// The layers of vector tiles; empty where nothing is said about them.
    ///
    /// `vector_layers` of PMTiles, MBTiles and TileJSON; layers without a name are left out.
    public var vectorLayers: [VectorLayer] {
        let listed = others.first { $0.name == "vector_layers" }?.value.array ?? []
        return listed.prefix(1000).compactMap { layer in
            guard let id = layer["id"]?.string else { return nil }
            var fields: [String: String] = [:]
            for field in layer["fields"]?.members ?? [] { fields[field.name] = field.value.string ?? "" }
            return VectorLayer(
                id: id, fields: fields, description: layer["description"]?.string,
                minzoom: layer["minzoom"]?.integer, maxzoom: layer["maxzoom"]?.integer)
        }
    }
}

/// A named set of tiles that an archive carries along; whose tiles they are is decided by who imports it.
public struct ArchiveRegion: Sendable, Hashable {
    /// Its name.
    public var name: String
    /// What it covers.
    public var spans: [TileSpan]
    /// The box it was made from.
    public var box: GeoBox?

    /// Takes over a region of a cache.
    public init(_ region: PinnedRegion) {
        name = region.name
        spans = region.spans
        box = region.box
    }

    init(name: String, spans: [TileSpan], box: GeoBox?) {
        self.name = name
        self.spans = spans
        self.box = box
    }

    /// The same region for a source of a cache.
    public func pinned(for source: SourceName) throws -> PinnedRegion {
        try PinnedRegion(name: name, source: source, spans: spans, box: box)
    }
}

extension ArchiveMetadata {
    /// Regions as JSON: `[{"name":…,"bbox":[w,s,e,n],"spans":[[zoom,first column,last,first row,last],…]},…]`.
    var regionsJSON: JSON {
        .array(
            regions.map { region in
                var members = [JSON.Member("name", .string(region.name))]
                if let box = region.box {
                    let edges = [box.west, box.south, box.east, box.north]
                    members.append(JSON.Member("bbox", .array(edges.map { .number("\($0)") })))
                }
                let spans = region.spans.map { span in
                    [
                        span.zoom, span.columns.lowerBound, span.columns.upperBound, span.rows.lowerBound,
                        span.rows.upperBound,
                    ]
                }
                members.append(JSON.Member("spans", .array(spans.map { .array($0.map { .number("\($0)") }) })))
                return .object(members)
            })
    }

    /// Takes back what can be understood; the rest is left out.
    private static func regions(_ value: JSON) -> [ArchiveRegion] {
        let parsed = value.string.flatMap { JSON(Data($0.utf8)) } ?? value
        return (parsed.array ?? []).compactMap { item in
            guard let name = item["name"]?.string, let list = item["spans"]?.array, (1...65536).contains(list.count)
            else { return nil }
            let spans = list.compactMap { span -> TileSpan? in
                let numbers = span.array?.compactMap(\.integer) ?? []
                guard numbers.count == 5, numbers[1] <= numbers[2], numbers[3] <= numbers[4] else { return nil }
                // One that is none leaves the whole region out, below: a part of it would pin less than was meant.
                return try? TileSpan(zoom: numbers[0], columns: numbers[1]...numbers[2], rows: numbers[3]...numbers[4])
            }
            guard spans.count == list.count else { return nil }
            return ArchiveRegion(
                name: name, spans: spans, box: item["bbox"]?.array.flatMap { box($0.compactMap(\.double)) })
        }
    }

    /// The members that PMTiles keeps in its JSON: what its header has no room for.
    var pmtilesMembers: [JSON.Member] {
        var members: [JSON.Member] = []
        for (name, value) in [("name", name), ("description", description), ("attribution", attribution)] {
            if let value { members.append(JSON.Member(name, .string(value))) }
        }
        // A name that is no text is among the others.
        let written = Set(members.map(\.name))
        members += others.filter { !written.contains($0.name) }
        if !regions.isEmpty { members.append(JSON.Member(Self.regionsName, regionsJSON)) }
        return members
    }

    /// Names of rows that have a meaning of their own.
    private static let reservedRows: Set<String> = [
        "name", "format", "bounds", "center", "minzoom", "maxzoom", "description", "attribution", "json", regionsName,
    ]

    /// The rows that MBTiles keeps, each name once: texts by name, and in the row `json` what is no text or has the name
    /// of a row that means something else.
    var mbtilesRows: [(name: String, value: String)] {
        var rows: [(name: String, value: String)] = [("name", name ?? "tiles"), ("format", tileFormat ?? "bin")]
        if let bounds { rows.append(("bounds", bounds.description)) }
        if let center { rows.append(("center", "\(center.longitude),\(center.latitude),\(center.zoom)")) }
        if let zooms {
            rows.append(("minzoom", "\(zooms.lowerBound)"))
            rows.append(("maxzoom", "\(zooms.upperBound)"))
        }
        if let description { rows.append(("description", description)) }
        if let attribution { rows.append(("attribution", attribution)) }
        var structured: [JSON.Member] = []
        for member in others {
            // SQLite's texts end at a NUL: two names that differ after it would be one.
            if let text = member.value.string, !Self.reservedRows.contains(member.name),
                !member.name.utf8.contains(0), !text.utf8.contains(0)
            {
                rows.append((member.name, text))
            } else {
                structured.append(member)
            }
        }
        if !structured.isEmpty { rows.append(("json", JSON.object(structured).text)) }
        if !regions.isEmpty { rows.append((Self.regionsName, regionsJSON.text)) }
        return rows
    }
}
