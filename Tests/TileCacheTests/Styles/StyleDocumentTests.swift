import Foundation
import Testing
import TileStore

@testable import TileCache

/// What is read out of styles, honest ones and others.
@Suite(.timeLimit(.minutes(60)))
struct StyleDocumentTests {
    private func style(_ text: String) throws -> StyleDocument {
        try StyleDocument(Data(text.utf8), "style 1", base: "https://maps.example/styles/a.json?token=1")
    }

    private func urls(_ document: StyleDocument, glyphRanges: [String]) throws -> [String] {
        var urls: [String] = []
        try document.addURLs(glyphRanges: glyphRanges) { urls.append($0) }
        return urls
    }

    private func expectRefusal(_ text: String, _ words: String) {
        let error = #expect(throws: TileCacheError.self) { try style(text) }
        #expect(error?.code == .invalidStyle && error?.message.contains(words) ?? false, "\(String(describing: error))")
    }

    @Test func allThatAStyleNamesIsFound() throws {
        let document = try style(
            """
            {"sprite": [{"id": "default", "url": "https://s.example/signs?k=1"}, {"id": "b", "url": "/more"}, 7],
            "glyphs": "//f.example/{fontstack}/{range}.pbf",
            "font-faces": {"A": "https://f.example/a.ttf", "B": [{"url": "b.ttf", "unicode-range": ["U+00-FF"]}, "c.ttf"]},
            "sources": {"tiles": {"type": "vector", "url": "tiles.json"},
            "heights": {"type": "raster-dem", "tiles": ["https://h.example/{z}/{x}/{y}.png", "https://i.example/{z}"],
            "minzoom": 2.0, "maxzoom": 99, "scheme": "tms", "bounds": [5, 45, 11, 48]},
            "points": {"type": "geojson", "data": "points.json"}, "inline": {"type": "geojson", "data": {"type": "Point"}},
            "photo": {"type": "image", "url": "photo.jpg"}, "film": {"type": "video", "urls": ["a.mp4", "b.webm"]},
            "odd": {"type": "custom", "url": "https://odd.example/"}, "none": 3},
            "layers": [{"layout": {"text-field": "x", "text-font": ["A", "B"]}}]}
            """)
        #expect(document.sprites == ["https://s.example/signs?k=1", "https://maps.example/more"])
        #expect(document.glyphs == "https://f.example/{fontstack}/{range}.pbf")
        #expect(
            Set(document.files)
                == [
                    "https://f.example/a.ttf", "https://maps.example/styles/b.ttf", "https://maps.example/styles/c.ttf",
                    "https://maps.example/styles/points.json", "https://maps.example/styles/photo.jpg",
                    "https://maps.example/styles/a.mp4", "https://maps.example/styles/b.webm",
                ])
        #expect(document.sources.count == 2)
        let tiles = try #require(document.sources.first?.tiles)
        #expect(tiles.zooms == 2...28 && tiles.isTMS && tiles.bounds?.east == 11)
        #expect(
            tiles.url(of: try TileAddress(z: 3, x: 4, y: 2), scale: 1) == "https://h.example/3/4/5.png")
        #expect(document.sources.last?.url == "https://maps.example/styles/tiles.json")
        let urls = try self.urls(document, glyphRanges: ["0-255", "256-511"])
        #expect(urls.contains("https://s.example/signs@2x.png?k=1"))
        #expect(urls.contains("https://f.example/A%2cB/256-511.pbf"))
        #expect(urls.count == 7 + 2 * 4 + 2)
    }

    /// As MapLibre Native writes them.
    @Test func placeholdersOfTiles() throws {
        let link = StyleLink(base: "https://a.example/", place: "style 1")
        func url(_ template: String, scale: Int = 2, z: Int = 5, x: Int = 19, y: Int = 12) throws -> String? {
            let object: [String: JSONValue] = ["tiles": .array([.string(template)])]
            return try TileSet(object, link)?.url(of: TileAddress(z: z, x: x, y: y), scale: scale)
        }
        #expect(try url("https://a.example/{prefix}/{z}/{x}/{y}{ratio}.png") == "https://a.example/3c/5/19/12@2x.png")
        #expect(try url("https://a.example/{z}/{x}/{y}{ratio}.png", scale: 1) == "https://a.example/5/19/12.png")
        #expect(try url("https://a.example/{quadkey}?{token}{") == "https://a.example/12211?{token}{")
        #expect(try url("asset://{z}") == nil)
    }

    @Test(arguments: [
        (#"["A"]"#, ["A"]), (#"["A", "B"]"#, ["A,B"]), (#"["literal", ["A", "B"]]"#, ["A,B"]),
        (#"["step", ["zoom"], ["literal", ["A"]], 6, ["literal", ["B"]]]"#, ["A", "B"]),
        (
            #"["case", ["==", "x", "y"], ["literal", ["A"]], ["has", "x"], ["literal", ["B"]], ["literal", ["C"]]]"#,
            ["A", "B", "C"]
        ),
        (#"["match", ["get", "x"], ["p", "q"], ["literal", ["A"]], ["literal", ["B"]]]"#, ["A", "B"]),
        (#"["coalesce", ["get", "font"], ["literal", ["A"]]]"#, ["A"]),
        (#"{"stops": [[4, ["A"]], [9, ["B", "C"]]], "default": ["D"]}"#, ["A", "B,C", "D"]),
        (#"["get", "font"]"#, []), (#"[]"#, []), (#"[1]"#, []), (#""A""#, []), (#"["literal", [1]]"#, []),
    ])
    func fontsOfExpressions(fonts: String, stacks: [String]) throws {
        let document = try style(
            #"{"glyphs": "https://f.example/{fontstack}/{range}", "layers": [{"layout": {"text-field": "x", "text-font": \#(fonts)}}]}"#
        )
        #expect(document.fontStacks == stacks)
    }

    @Test func fontsOfSectionsAndOfLayersThatNameNone() throws {
        let document = try style(
            """
            {"glyphs": "https://f.example/{fontstack}/{range}", "layers": [{"layout": {"text-field": "x"}}, 3, {},
            {"layout": {"text-font": ["Later"]}}, {"layout": {"text-font": ["A"],
            "text-field": ["format", "x", {"text-font": ["literal", ["B"]]}, ["get", "y"], {}]}}]}
            """)
        #expect(document.fontStacks == ["Open Sans Regular,Arial Unicode MS Regular", "Later", "A", "B"])
        // Without glyphs the fonts are the system's.
        #expect(try style(#"{"layers": [{"layout": {"text-field": "x"}}]}"#).fontStacks.isEmpty)
    }

    @Test func whatTheAppCarriesItselfIsNotAskedFor() throws {
        let document = try style(
            """
            {"layers": [], "sprite": "asset://signs", "glyphs": "file:///etc/{fontstack}/{range}", "sources": {
            "a": {"type": "geojson", "data": "file:///etc/passwd"}, "b": {"type": "vector", "url": "FILE:///etc/hosts"},
            "c": {"type": "image", "url": "data:image/png;base64,AAAA"}}}
            """)
        #expect(try urls(document, glyphRanges: ["0-255"]).isEmpty && document.sources.isEmpty)
    }

    @Test func hostileStylesAreRefused() throws {
        expectRefusal("", "no JSON object")
        expectRefusal("<html>", "no JSON object")
        expectRefusal("[]", "no JSON object")
        expectRefusal(#"{"version": 8}"#, "neither layers nor sources")
        expectRefusal(String(repeating: #"{"a":"#, count: 100), "no JSON object")
        expectRefusal(#"{"layers": "# + String(repeating: "[", count: 10_000), "no JSON object")
        expectRefusal(
            #"{"layers": ["# + Array(repeating: "1", count: 2_000_000).joined(separator: ",") + "]}", "no JSON object")
        expectRefusal(#"{"layers": [], "x": ""# + String(repeating: "y", count: 9 << 20) + #""}"#, "at most 8 MiB")
        expectRefusal(#"{"layers": [], "imports": [{"id": "a", "url": "https://a.example/"}]}"#, "imports")
        for scheme in ["mapbox://styles/a", "pmtiles://https://a.example/b", "ftp://a.example", "javascript:alert(1)"] {
            expectRefusal(#"{"layers": [], "sprite": "\#(scheme)"}"#, "cannot be downloaded")
        }
        let source = #"{"type": "vector", "url": "https://a.example/"}"#
        expectRefusal(
            #"{"sources": {"# + (0..<5000).map { #""s\#($0)": \#(source)"# }.joined(separator: ",") + "}}",
            "5000 sources")
        expectRefusal(
            #"{"glyphs": "https://f.example/{fontstack}", "layers": ["#
                + (0..<100_000).map { #"{"layout": {"text-field": "x", "text-font": ["f\#($0)"]}}"# }
                .joined(separator: ",") + "]}", "257 fonts")
        expectRefusal(
            #"{"layers": [], "sprite": ["#
                + (0..<9000).map { #"{"url": "https://s.example/\#($0)"}"# }.joined(separator: ",") + "]}",
            "257 sheets")
        expectRefusal(
            #"{"layers": [], "sprite": "https://a.example/\#(String(repeating: "a", count: 9000))"}"#, "bytes")
    }

    @Test func zoomsOfASource() throws {
        func zooms(_ first: Double, _ last: Double, _ wanted: ClosedRange<Int>) throws -> ClosedRange<Int>? {
            let object: [String: JSONValue] = [
                "tiles": .array([.string("https://a.example/{z}/{x}/{y}")]), "minzoom": .number(first),
                "maxzoom": .number(last),
            ]
            return try TileSet(object, StyleLink(base: "", place: ""))?.zooms(for: wanted)
        }
        #expect(try zooms(0, 14, 3...9) == 3...9)
        #expect(try zooms(4, 6, 3...9) == 4...6)
        // A map draws the last zoom enlarged.
        #expect(try zooms(0, 6, 10...14) == 6...6)
        #expect(try zooms(12, 14, 0...9) == nil)
        #expect(try zooms(-3, 1e300, 27...28) == 27...28)
        #expect(try zooms(9, 2, 0...28) == 9...9)
    }

    @Test func rangesOfGlyphs() throws {
        var map = StyledRegion(.box(try GeoBox(west: 0, south: 0, east: 1, north: 1)), zooms: 0...1, styles: [])
        #expect(map.glyphRanges.count == 10 && map.glyphRanges.last == "8448-8703")
        map.glyphs = StyledRegion.allGlyphs
        #expect(map.glyphRanges.count == 256 && map.glyphRanges.last == "65280-65535")
        map.glyphs = [65...66, 200...300, 0x1_F600...0x1_F64F]
        #expect(map.glyphRanges == ["0-255", "256-511"])
    }

    /// Each level doubled the work: a style of a kilobyte kept a thread busy for ever.
    @Test(arguments: ["\"case\", 0", "\"match\", 0, 0", "\"case\", 0, [\"literal\", [\"A\"]]", "\"step\", 0"])
    func aNestedExpressionIsReadOnce(_ begin: String) throws {
        let fonts =
            String(repeating: "[\(begin), ", count: 55) + "[\"literal\", [\"A\"]]" + String(repeating: "]", count: 55)
        let document = try style(
            "{\"glyphs\": \"https://g.example/{fontstack}/{range}\", \"layers\": [{\"layout\": {\"text-field\": \"x\", "
                + "\"text-font\": \(fonts)}}]}")
        #expect(document.fontStacks == ["A"])
    }

    /// All were made before the first was looked at: some kilobytes became gigabytes.
    @Test func urlsAreMadeOneByOne() throws {
        struct Enough: Error {}
        let names = (0..<200).map { "{\"layout\": {\"text-field\": \"x\", \"text-font\": [\"\($0)\"]}}" }
        let document = try style(
            "{\"glyphs\": \"https://g.example/\(String(repeating: "{fontstack}", count: 700))/{range}\", \"layers\": ["
                + names.joined(separator: ", ") + "]}")
        var count = 0
        #expect(throws: Enough.self) {
            try document.addURLs(glyphRanges: ["0-255"]) { _ in
                count += 1
                throw Enough()
            }
        }
        #expect(count == 1)
        let long = try style(
            "{\"glyphs\": \"https://g.example/\(String(repeating: "{fontstack}", count: 700))/{range}\", \"layers\": ["
                + "{\"layout\": {\"text-field\": \"x\", \"text-font\": [\"\(String(repeating: "A", count: 100_000))\"]}}]}"
        )
        try long.addURLs(glyphRanges: ["0-255"]) { #expect($0.utf8.count > 1024 && $0.utf8.count < 120_000) }
    }
}
