import Testing
import TileStore
import TileStoreTesting

@testable import TileCache

/// Which tile a URL is of: the inverse of filling a template in.
@Suite
struct URLTemplateMatchingTests {
    private static let templates = [
        "https://tiles.example/{z}/{x}/{y}.png", "https://tiles.example/{z}/{x}/{y}{r}.png",
        "https://tiles.example/{z}/{x}/{-y}@{scale}x", "https://tiles.example/t{z}{x}/9{y}9?key={key}",
        "https://tiles.example/{q}", "https://tiles.example/{q}0{scale}", "https://tiles.example:8443/a|b/{z}/{x}/{y}",
        "https://{s}.tiles.example/{z}/{x}/{y}/{z}", "https://tiles.example/{s}/{y}/{z}/{x}/{-y}/{q}",
        "https://tiles.example/wms?bbox={bbox-epsg-3857}&size=256", "http://tiles.example?x={x}&y={y}&z={z}",
    ]

    private func template(_ text: String) throws -> URLTemplate {
        try URLTemplate(
            text, subdomains: text.contains("{s}") ? ["a", "ab", "1"] : [],
            values: text.contains("{key}") ? ["key": "p/w ä"] : [:])
    }

    private func tile(_ template: URLTemplate, _ url: TileURL) -> TileAddress? {
        template.tile(url.scheme, authority: url.authority, path: url.path, format: nil)
    }

    @Test(arguments: templates)
    func aTilesURLLeadsBackToIt(_ text: String) throws {
        let template = try template(text)
        var random = SplitMix64(seed: 7)
        for z in 0...28 {
            for _ in 0..<20 {
                let (x, y) = (random.below(1 << z), random.below(1 << z))
                let scale = template.usesScale ? 1 + random.below(3) : 1
                let tile = try TileAddress(z: z, x: x, y: y, scale: scale)
                let found = self.tile(template, template.url(for: tile))
                // Without anything between them, two numbers can be read in several ways; the URL is the same.
                if text.contains("{z}{x}") || text.contains("{q}0") {
                    #expect(found.map(template.url) == template.url(for: tile), "\(tile)")
                } else {
                    #expect(found == tile)
                }
            }
        }
    }

    @Test func everySubdomainHasEveryTile() throws {
        let template = try template("https://{s}.tiles.example/{z}/{x}/{y}/{z}")
        for host in ["a.tiles.example", "AB.tiles.example", "1.tiles.example:443"] {
            let tile = template.tile(.https, authority: host, path: "/3/4/2/3", format: "png")
            #expect(try tile == TileAddress(z: 3, x: 4, y: 2, format: "png"))
        }
        #expect(template.tile(.https, authority: "c.tiles.example", path: "/3/4/2/3", format: nil) == nil)
    }

    @Test(arguments: [
        "/3/4/2", "/3/4/2.png?a=b", "/3/4/2.pngx", "/03/4/2.png", "/3/+4/2.png", "/3/8/2.png", "/3/4/8.png",
        "/29/4/2.png", "/3/4/-2.png", "/3/4/99999999999999999999.png", "//3/4/2.png", "/3/4/2.PNG", "/3//2.png", "",
        "/", "/3/4/2.png/",
        "/3/4/2%2fpng", "/3%2F4/2.png", "/3/4/2%2", "/3/4/2.png%", "/3/4/2%zz.png", "/3/4/٢.png", "/4294967299/4/2.png",
    ])
    func whatIsNoTilesURLIsNone(_ path: String) throws {
        let template = try template("https://tiles.example/{z}/{x}/{y}.png")
        #expect(template.tile(.https, authority: "tiles.example", path: path, format: nil) == nil)
    }

    /// A token was encoded in one place and not in the other.
    @Test func whatNeedNotBeEncodedMayBe() throws {
        let template = try URLTemplate(
            "https://tiles.example/{z}/{x}/{y}.png?key={key}", values: ["key": "ab:c/d=e"])
        let tile = try TileAddress(z: 3, x: 4, y: 2)
        for path in [
            template.url(for: tile).path, "/3/4/2.png?key=ab:c/d=e", "/3/4/2%2Epng?key=ab%3ac%2Fd%3De",
            "/3/4/%32.png?key=ab:c/d=e",
        ] { #expect(template.tile(.https, authority: "tiles.example", path: path, format: nil) == tile, "\(path)") }
        for path in ["/3/4/2.png%3Fkey=ab:c/d=e", "/3/4/2.png?key=ab:c/d%26e", "/3/4%2F2.png?key=ab:c/d=e"] {
            #expect(template.tile(.https, authority: "tiles.example", path: path, format: nil) == nil, "\(path)")
        }
        let plus = try URLTemplate("https://tiles.example/{z}/{x}/{y}?t=a+b")
        #expect(plus.tile(.https, authority: "tiles.example", path: "/3/4/2?t=a%2Bb", format: nil) == nil)
    }

    /// A sign and a digit were taken for an encoding.
    @Test func anEncodingHasTwoDigits() throws {
        let template = try URLTemplate("https://tiles.example/{z}/{x}/{y}%0Aa")
        let tile = try TileAddress(z: 3, x: 4, y: 2)
        #expect(template.tile(.https, authority: "tiles.example", path: "/3/4/2%0aa", format: nil) == tile)
        #expect(template.tile(.https, authority: "tiles.example", path: "/3/4/2%+Aa", format: nil) == nil)
    }

    /// Other programs write whole metres without a point, and round at other places.
    @Test func aBoxIsReadAsOtherProgramsWriteIt() throws {
        let template = try template("https://tiles.example/wms?bbox={bbox-epsg-3857}&size=256")
        func tile(_ box: String) -> TileAddress? {
            template.tile(.https, authority: "tiles.example", path: "/wms?bbox=\(box)&size=256", format: nil)
        }
        let expected = try TileAddress(z: 1, x: 1, y: 0)
        for box in [
            "0,0,20037508.342789244,20037508.342789244", "0.0,-0.0,20037508.34,20037508.34", "0,0,20037508,2.0037508e7",
            "0%2C0%2C20037508.34%2C20037508.34", "1e-9,0,20037508.3428,20037508.3428",
        ] { #expect(tile(box) == expected, "\(box)") }
        for box in ["0,0,20037508.34,10037508.34", "0,0,20057508,20057508", "20000,0,20057508,20037508"] {
            #expect(tile(box) == nil, "\(box)")
        }
    }

    /// A box that is next to nothing ended the process.
    @Test func noBoxIsTooSmallOrTooLarge() throws {
        let template = try template("https://tiles.example/wms?bbox={bbox-epsg-3857}&size=256")
        let numbers = [
            "0", "-0", "1", "1e-305", "5e-324", "-1e-305", "1e308", "-1e308", "20037508.34", "-20037508.34", "1e-9",
            "e", "-",
        ]
        for west in numbers {
            for east in numbers {
                for north in numbers {
                    let path = "/wms?bbox=\(west),0,\(east),\(north)&size=256"
                    let tile = template.tile(.https, authority: "tiles.example", path: path, format: nil)
                    #expect(tile.map { $0.z <= 1 } ?? true, "\(path)")
                }
            }
        }
    }

    @Test func otherServersHaveOtherTiles() throws {
        let template = try template("https://tiles.example/{z}/{x}/{y}.png")
        for (scheme, host) in [
            (TileURL.Scheme.http, "tiles.example"), (.https, "tiles.example:80"), (.https, "other.example"),
            (.https, "tiles.example."), (.https, "me@tiles.example"), (.file, ""),
        ] { #expect(template.tile(scheme, authority: host, path: "/3/4/2.png", format: nil) == nil) }
    }

    /// Each placeholder that comes twice must stand for the same.
    @Test func contradictionsAreNoTile() throws {
        let template = try template("https://tiles.example/{s}/{y}/{z}/{x}/{-y}/{q}")
        let tile = try TileAddress(z: 3, x: 4, y: 2)
        let path = template.url(for: tile).path
        #expect(template.tile(.https, authority: "tiles.example", path: path, format: nil) == tile)
        for other in ["/a/2/3/4/5/121", "/a/2/3/4/4/120", "/a/3/3/4/5/120"] {
            #expect(template.tile(.https, authority: "tiles.example", path: other, format: nil) == nil)
        }
        let box = try self.template("https://tiles.example/wms?bbox={bbox-epsg-3857}&size=256")
        for path in ["0,0,1,1", "nan,0,1,1", "inf,inf,inf,inf", "0,0,0,0", "1e308,0,-1e308,1", "1,2,3", ""] {
            let path = "/wms?bbox=\(path)&size=256"
            #expect(box.tile(.https, authority: "tiles.example", path: path, format: nil) == nil)
        }
    }
}
