import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// What a style names: read from bytes that nobody vouches for.
///
/// Whatever is not understood is passed over, as by a map; what would make the map incomplete is an error.
struct StyleDocument {
    /// A source of the style.
    struct Source {
        /// Where its TileJSON is.
        var url: String?
        /// Its tiles, where the style itself says it.
        var tiles: TileSet?
    }

    /// The URLs of sheets of signs, without their endings.
    private(set) var sprites: [String] = []
    /// The template of glyphs.
    private(set) var glyphs: String?
    /// The stacks of fonts that its layers name, each as a text of names with commas.
    private(set) var fontStacks: [String] = []
    /// Its sources of tiles, in the order of their names.
    private(set) var sources: [Source] = []
    /// URLs of what else it names: GeoJSON, pictures, fonts.
    private(set) var files: [String] = []

    /// No larger document is read.
    static let longest = 8 << 20
    /// A style has at most so many sources, stacks of fonts, and sheets of signs.
    static let most = 256
    /// What lies deeper is no style's.
    private static let deepest = 64
    /// What MapLibre takes where a layer with a text names no font.
    private static let defaultFonts = "Open Sans Regular,Arial Unicode MS Regular"

    /// - Parameters:
    ///   - place: The document's name in messages.
    ///   - base: Its URL, for what it names without a scheme.
    init(_ body: Data, _ place: String, base: String) throws {
        let root = try Self.object(body, place)
        guard root["layers"]?.array != nil || root["sources"]?.object != nil else {
            throw TileCacheError(.invalidStyle, "\(place) is no style: it has neither layers nor sources")
        }
        guard root["imports"]?.array?.isEmpty ?? true else {
            throw TileCacheError(.invalidStyle, "\(place) imports other styles, which cannot be downloaded")
        }
        let link = StyleLink(base: base, place: place)
        try readSprites(root["sprite"], link)
        glyphs = try root["glyphs"]?.string.flatMap { try link.address($0) }
        try readFontFaces(root["font-faces"], link)
        if glyphs != nil { readFonts(root["layers"]?.array ?? []) }
        try readSources(root["sources"]?.object ?? [:], link)
        for (count, what) in [(sprites.count, "sheets of signs"), (fontStacks.count, "fonts"), (files.count, "files")]
        where count > Self.most {
            throw TileCacheError(
                .invalidStyle, "\(place) names \(count) \(what); at most \(Self.most) can be downloaded")
        }
    }

    /// A JSON object that somebody sent.
    static func object(_ body: Data, _ place: String) throws -> [String: JSONValue] {
        let bytes = Array(body)
        guard bytes.count <= longest,
            let object = bytes.withUnsafeBytes({ JSONValue($0, depth: deepest) })?.object
        else {
            throw TileCacheError(
                .invalidStyle,
                "\(place) is no JSON object of at most \(longest >> 20) MiB and \(deepest) levels: what came cannot be a style"
            )
        }
        return object
    }

    private mutating func readSprites(_ value: JSONValue?, _ link: StyleLink) throws {
        let texts = value?.string.map { [$0] } ?? value?.array?.compactMap { $0.object?["url"]?.string } ?? []
        for text in texts {
            if let address = try link.address(text), !sprites.contains(address) { sprites.append(address) }
            if sprites.count > Self.most { return }
        }
    }

    private mutating func readFontFaces(_ value: JSONValue?, _ link: StyleLink) throws {
        for (_, face) in (value?.object ?? [:]).sorted(by: { $0.key < $1.key }) {
            let texts = face.string.map { [$0] } ?? face.array?.compactMap { $0.string ?? $0.object?["url"]?.string }
            for text in texts ?? [] { try addFile(text, link) }
        }
    }

    private mutating func readSources(_ sources: [String: JSONValue], _ link: StyleLink) throws {
        guard sources.count <= Self.most else {
            throw TileCacheError(
                .invalidStyle,
                "\(link.place) names \(sources.count) sources; at most \(Self.most) can be downloaded")
        }
        for (_, value) in sources.sorted(by: { $0.key < $1.key }) {
            guard let source = value.object, let type = source["type"]?.string else { continue }
            switch type {
            case "vector", "raster", "raster-dem":
                let url = try source["url"]?.string.flatMap { try link.address($0) }
                let tiles = try TileSet(source, link)
                if url != nil || tiles != nil { self.sources.append(Source(url: url, tiles: tiles)) }
            case "geojson": if let text = source["data"]?.string { try addFile(text, link) }
            case "image": if let text = source["url"]?.string { try addFile(text, link) }
            case "video":
                for url in source["urls"]?.array ?? [] { if let text = url.string { try addFile(text, link) } }
            default: break
            }
        }
    }

    private mutating func addFile(_ text: String, _ link: StyleLink) throws {
        guard files.count <= Self.most, let address = try link.address(text), !files.contains(address) else { return }
        files.append(address)
    }

    // MARK: Fonts

    private mutating func readFonts(_ layers: [JSONValue]) {
        var stacks = FontStacks(most: Self.most)
        for layer in layers {
            guard let layout = layer.object?["layout"]?.object else { continue }
            let text = layout["text-field"]
            if let fonts = layout["text-font"] {
                stacks.add(fonts)
            } else if text != nil {
                stacks.add(named: Self.defaultFonts)
            }
            if let text { stacks.addSections(of: text) }
        }
        fontStacks = stacks.names
    }
}

/// The fonts that layers name, whether plainly, by zoom, or by an expression.
private struct FontStacks {
    let most: Int
    private(set) var names: [String] = []
    private var known = Set<String>()

    init(most: Int) { self.most = most }

    mutating func add(named name: String) {
        // One more than there may be tells that there are too many.
        if names.count <= most, known.insert(name).inserted { names.append(name) }
    }

    /// Adds what a value of `text-font` can come to; what only the map's data tell is not known.
    mutating func add(_ value: JSONValue) {
        if let function = value.object {
            for stop in function["stops"]?.array ?? [] { stop.array?.dropFirst().first.map { add($0) } }
            if let other = function["default"] { add(other) }
            return
        }
        guard let items = value.array, let first = items.first?.string else { return }
        // Each once: twice at every level would be a work that doubles with each.
        func results(_ from: Int, andLast: Bool = false) -> [JSONValue] {
            items.indices.filter { $0 >= from && ($0 - from) % 2 == 0 || andLast && $0 > 0 && $0 == items.count - 1 }
                .map { items[$0] }
        }
        switch first {
        case "literal": if items.count > 1 { addStack(items[1]) }
        case "step": for item in results(2) { add(item) }
        case "case": for item in results(2, andLast: true) { add(item) }
        case "match": for item in results(3, andLast: true) { add(item) }
        case "coalesce", "let", "array": for item in items.dropFirst() { add(item) }
        case "get", "var", "at", "feature-state", "global-state", "config", "slice", "to-string", "string",
            "interpolate":
            break
        default: addStack(value)
        }
    }

    private mutating func addStack(_ value: JSONValue) {
        let fonts = value.array?.compactMap(\.string) ?? []
        guard !fonts.isEmpty, fonts.count == value.array?.count else { return }
        add(named: fonts.joined(separator: ","))
    }

    /// Adds the fonts of a text's sections (`format`).
    mutating func addSections(of text: JSONValue) {
        switch text {
        case .array(let items): for item in items { addSections(of: item) }
        case .object(let members):
            for (name, value) in members.sorted(by: { $0.key < $1.key }) {
                if name == "text-font" { add(value) } else { addSections(of: value) }
            }
        default: break
        }
    }
}

/// The tiles of a style's source, as its TileJSON or the style itself has them.
struct TileSet {
    /// The first of its templates: the one that MapLibre Native asks by.
    let template: String
    /// The zooms that there are.
    let zooms: ClosedRange<Int>
    /// Whether rows count from the south.
    let isTMS: Bool
    /// Where tiles are; `nil` for everywhere.
    let bounds: GeoBox?

    /// - Returns: `nil` if the object names no tiles.
    init?(_ object: [String: JSONValue], _ link: StyleLink) throws {
        guard let text = object["tiles"]?.array?.first?.string, let template = try link.address(text) else {
            return nil
        }
        self.template = template
        func zoom(_ name: String, _ other: Int) -> Int {
            object[name]?.double.map { Int(min(max($0, 0), 28)) } ?? other
        }
        let first = zoom("minzoom", 0)
        zooms = first...max(first, zoom("maxzoom", 22))
        isTMS = object["scheme"]?.string == "tms"
        let edges = object["bounds"]?.array?.compactMap(\.double) ?? []
        bounds = edges.count == 4 ? try? GeoBox(west: edges[0], south: edges[1], east: edges[2], north: edges[3]) : nil
    }

    /// The zooms that a map of some zooms takes of it; `nil` if it shows none.
    func zooms(for wanted: ClosedRange<Int>) -> ClosedRange<Int>? {
        guard wanted.upperBound >= zooms.lowerBound else { return nil }
        return max(
            zooms.lowerBound, min(wanted.lowerBound, zooms.upperBound))...min(wanted.upperBound, zooms.upperBound)
    }

    /// The URL of a tile, as MapLibre Native makes it.
    ///
    /// - Parameter scale: Pixels per point of the screen.
    func url(of tile: TileAddress, scale: Int) -> String {
        let row = isTMS ? (1 << tile.z) - 1 - tile.y : tile.y
        return template.replacingPlaceholders { name in
            switch name {
            case "z": "\(tile.z)"
            case "x": "\(tile.x)"
            case "y": "\(row)"
            case "quadkey": tile.quadkey
            case "ratio": scale > 1 ? "@2x" : ""
            case "prefix": String(tile.x % 16, radix: 16) + String(row % 16, radix: 16)
            case Self.box: tile.mercatorBox.description
            default: nil
            }
        }
    }

    /// The placeholder of a box, whose digits each program writes in its own way.
    private static let box = "bbox-epsg-3857"

    /// Whether programs may write its URLs differently.
    var hasBoxes: Bool { template.contains("{\(Self.box)}") }
}

/// How a document names other resources.
struct StyleLink {
    /// The document's URL.
    let base: String
    /// Its name in messages.
    let place: String

    /// The URL by `http` or `https`; `nil` for what the app itself carries, or what stands in the document.
    ///
    /// - Throws: ``TileCacheError`` for what cannot be downloaded, so that the map would not be whole.
    func address(_ text: String) throws -> String? {
        guard text.utf8.count <= 8192 else {
            throw TileCacheError(.invalidStyle, "\(place) names a URL of \(text.utf8.count) bytes")
        }
        let scheme = text.prefix { $0 != ":" && $0 != "/" && $0 != "?" && $0 != "{" }
        guard scheme.endIndex < text.endIndex, text[scheme.endIndex] == ":" else {
            return try resolved(text)
        }
        switch scheme.lowercased() {
        case "http", "https": return text
        case "data", "asset", "file": return nil
        default:
            let name = scheme.filter { $0.isASCII && ($0.isLetter || $0.isNumber) }.prefix(20)
            throw TileCacheError(
                .invalidStyle,
                "\(place) names a URL by \(name):, which cannot be downloaded: give a style with https URLs")
        }
    }
}

extension String {
    /// The text with what stands for its `{placeholders}`; one without a value stays as it is.
    func replacingPlaceholders(_ value: (Substring) -> String?) -> String {
        var (result, rest) = ("", self[...])
        while let start = rest.firstIndex(of: "{"), let end = rest[start...].firstIndex(of: "}") {
            result += rest[..<start]
            result += value(rest[rest.index(after: start)..<end]) ?? String(rest[start...end])
            rest = rest[rest.index(after: end)...]
        }
        return result + rest
    }
}
