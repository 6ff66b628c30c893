import Testing
import TileCache
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)))
struct URLTemplateTests {
    private let tile: TileAddress

    init() throws { tile = try TileAddress(z: 3, x: 2, y: 5) }

    private func text(
        _ template: String, subdomains: [String] = [], values: [String: String] = [:], tile: TileAddress? = nil
    ) throws -> String {
        try URLTemplate(template, subdomains: subdomains, values: values).url(for: tile ?? self.tile).text
    }

    @Test(arguments: [
        ("https://tile.openstreetmap.org/{z}/{x}/{y}.png", "https://tile.openstreetmap.org/3/2/5.png"),
        ("http://localhost:8080/{z}/{x}/{y}", "http://localhost:8080/3/2/5"),
        ("https://a.example/{z}/{x}/{-y}.png", "https://a.example/3/2/2.png"),
        ("https://a.example/tiles/{q}.jpeg?g=1", "https://a.example/tiles/212.jpeg?g=1"),
        ("https://a.example/{z}/{x}/{y}{r}.png", "https://a.example/3/2/5.png"),
        ("https://a.example/{z}/{x}/{y}@{scale}x.png", "https://a.example/3/2/5@1x.png"),
        (
            "https://a.example/wms?bbox={bbox-epsg-3857}&width=256",
            "https://a.example/wms?bbox=-10018754.171394622,-10018754.171394622,-5009377.085697311,-5009377.085697311"
                + "&width=256"
        ),
        ("https://a.example?z={z}&x={x}&y={y}", "https://a.example/?z=3&x=2&y=5"),
        ("HTTPS://A.Example/{x}/{z}/{y}/{x}", "https://a.example/2/3/5/2"),
        ("https://[::1]:99/{z}/{x}/{y}", "https://[::1]:99/3/2/5"),
        ("https://a.example/é/{z}/{x}/{y}?a|b", "https://a.example/%C3%A9/3/2/5?a%7Cb"),
        ("https://a.example/a%20b/{z}/{x}/{y}", "https://a.example/a%20b/3/2/5"),
        ("https://a.example/..a/{z}/{x}/{y}..?p=../..", "https://a.example/..a/3/2/5..?p=../.."),
        ("file:///maps/my%20map/{z}/{x}/{y}.png", "/maps/my map/3/2/5.png"),
        ("file://localhost/é%3F/{z}/{x}/{y}", "/é?/3/2/5"),
    ])
    func placeholdersAreFilledIn(template: String, expected: String) throws {
        #expect(try text(template) == expected)
    }

    @Test
    func aRequestGetsItsParts() throws {
        let template = try URLTemplate(
            "https://{s}.tiles.example:8443/{z}/{x}/{y}{r}.png?key={apikey}", subdomains: ["a", "B"],
            values: ["apikey": "s3cret"])
        let url = template.url(for: try TileAddress(z: 9, x: 300, y: 17, scale: 2))
        #expect(url.scheme == .https)
        #expect(url.authority == "b.tiles.example:8443")
        #expect(url.path == "/9/300/17@2x.png?key=s3cret")
        #expect(template.hosts == ["a.tiles.example", "b.tiles.example"])
        #expect(try URLTemplate("file:///a/{z}/{x}/{y}").hosts.isEmpty)
        // A full name ends with a dot; it is the same host.
        #expect(try URLTemplate("https://Tile.OpenStreetMap.org./{z}/{x}/{y}").hosts == ["tile.openstreetmap.org"])
    }

    @Test
    func oneTileAlwaysAsksOneHostAndNeighboursOthers() throws {
        let template = try URLTemplate("https://{s}.a.example/{s}/{z}/{x}/{y}", subdomains: ["a", "b", "c"])
        for x in 0..<8 {
            for y in 0..<8 {
                let url = template.url(for: try TileAddress(z: 3, x: x, y: y))
                // Leaflet: subdomains[Math.abs(x + y) % subdomains.length]
                let name = ["a", "b", "c"][(x + y) % 3]
                #expect(url.authority == "\(name).a.example" && url.path == "/\(name)/3/\(x)/\(y)")
            }
        }
    }

    @Test
    func theMiddleOfTheWorldIsZero() throws {
        let tile = try TileAddress(z: 1, x: 1, y: 0)
        let extent = "20037508.342789244"
        #expect(
            try text("https://a.example/{bbox-epsg-3857}", tile: tile)
                == "https://a.example/0.0,0.0,\(extent),\(extent)")
    }

    @Test
    func valuesAreEncodedAsTheirPlaceNeeds() throws {
        #expect(
            try text(
                "https://a.example/{style}/{z}/{x}/{y}?t={t}", values: ["style": "me/streets v1", "t": "a+b=&c%é"])
                == "https://a.example/me/streets%20v1/3/2/5?t=a%2Bb%3D%26c%25%C3%A9")
        #expect(
            try text("https://{region}.a.example/{z}/{x}/{y}", values: ["region": "EU-1"])
                == "https://eu-1.a.example/3/2/5")
        #expect(
            try text("file:///{folder}/{z}/{x}/{y}", values: ["folder": "my map é"]) == "/my map é/3/2/5")
    }

    @Test
    func theLargestTileFits() throws {
        let last = (1 << 28) - 1
        for scale in 1...8 {
            let tile = try TileAddress(z: 28, x: last, y: last, scale: scale)
            let url = try text(
                "https://a.example/{z}{x}{y}{-y}{q}{scale}{r}{bbox-epsg-3857}!", tile: tile)
            let box = tile.mercatorBox.description
            let quads = String(repeating: "3", count: 28)
            let retina = scale == 1 ? "" : "@\(scale)x"
            #expect(url == "https://a.example/28\(last)\(last)0\(quads)\(scale)\(retina)\(box)!")
        }
        var random = SplitMix64(seed: 1)
        for _ in 0..<500 {
            let zoom = random.below(29)
            let tile = try TileAddress(z: zoom, x: random.below(1 << zoom), y: random.below(1 << zoom))
            #expect(
                try text("http://a.example/{z}/{x}/{y}/{bbox-epsg-3857}/", tile: tile)
                    == "http://a.example/\(zoom)/\(tile.x)/\(tile.y)/\(tile.mercatorBox)/")
        }
    }

    @Test(arguments: [
        ("", 1, "https://example.org"),
        ("ftp://a.example/{z}/{x}/{y}", 1, "http, https or file"),
        ("//a.example/{z}/{x}/{y}", 1, "http, https and file"),
        ("https:/a.example/{z}/{x}/{y}", 1, "http, https and file"),
        ("https:///{z}/{x}/{y}", 9, "no host"),
        ("https://:80/{z}/{x}/{y}", 9, "no host"),
        ("https://a..b/{z}/{x}/{y}", 9, "no host's name"),
        ("https://a.example:0/{z}/{x}/{y}", 9, "port"),
        ("https://a.example:99999/{z}/{x}/{y}", 9, "port"),
        ("https://a.example:/{z}/{x}/{y}", 9, "port"),
        ("https://[::1/{z}/{x}/{y}", 9, "no ]"),
        ("https://[example]/{z}/{x}/{y}", 9, "IPv6"),
        ("https://a:b:c/{z}/{x}/{y}", 9, "port"),
        ("https://user:password@a.example/{z}/{x}/{y}", 22, "Authorization header"),
        ("https://ä.example/{z}/{x}/{y}", 9, "xn--"),
        ("https://a_b!.example/{z}/{x}/{y}", 12, "host's name"),
        ("https://{x}.a.example/{z}/{y}", 9, "cannot be in the host"),
        ("https://{s}.a.example/{z}/{x}/{y}", 9, "needs subdomains"),
        ("https://a.example", 18, "no path"),
        ("https://a.example/é/{z}/{x}/{level}", 29, "{level} is no known placeholder"),
        ("https://a.example/{z}/{x}/{ }", 27, "this is no known placeholder"),
        ("https://a.example/{z}/{x}/{}", 27, "no known placeholder"),
        ("https://a.example/{z}/{x}/{y", 27, "no }"),
        ("https://a.example/{z}/{x{y}", 23, "no }"),
        ("https://a.example/{z}/{x}}/{y}", 26, "no {"),
        ("https://a.example/{z}/{x}/{y}#top", 30, "fragment"),
        ("https://a.example/{z}/{x} /{y}", 26, "white space"),
        ("https://a.example/{z}/{x}/{y}\n", 30, "white space"),
        ("https://a.example/{z}/{x}/{y}\u{1}", 30, "control"),
        ("https://a.example/{z}/{x}/{y}?a=100%", 36, "%25"),
        ("https://a.example/{z}/{x}/{y}?a=%2g", 33, "%25"),
        ("https://a.example/../{z}/{x}/{y}", 20, ".."),
        ("https://a.example/a/%2E./{z}/{x}/{y}", 24, ".."),
        ("https://a.example/./{z}/{x}/{y}", 19, ".."),
        ("https://a.example/{z}/{x}/{y}/..", 32, ".."),
        ("https://a.example/{z}/{x}/{y}/{r}..", 35, ".."),
        ("file:///a/../{z}/{x}/{y}", 12, ".."),
        ("file:///a/{z}/{x}/{y}?a", 22, "%3F"),
        ("file:///a/{z}/{x}/{y}%2f", 22, "file's name"),
        ("file:///a/{z}/{x}/{y}%00", 22, "file's name"),
        ("file://server/a/{z}/{x}/{y}", 8, "three slashes"),
    ])
    func aBadTemplateIsRefusedWhereItIsWrong(template: String, position: Int, words: String) {
        let error = #expect(throws: URLTemplateError.self) { try URLTemplate(template) }
        #expect(error?.position == position, "\(error?.description ?? "")")
        #expect(error?.message.contains(words) == true, "\(error?.description ?? "")")
    }

    @Test
    func whatIsMissingOrTooMuchIsNamed() throws {
        func message(_ template: String, _ subdomains: [String] = [], _ values: [String: String] = [:]) -> String {
            let error = #expect(throws: URLTemplateError.self) {
                try URLTemplate(template, subdomains: subdomains, values: values)
            }
            return error?.description ?? ""
        }
        let good = "https://a.example/{z}/{x}/{y}"
        #expect(message("https://a.example/{z}/{x}.png").contains("{y} missing"))
        #expect(message("https://a.example/{z}/{-y}.png").contains("{x} missing"))
        #expect(message("https://a.example/one.png").contains("{z}, {x}, {y} missing"))
        #expect(message(good, ["a"]).contains("no {s} in the template"))
        #expect(message(good, [], ["key": "SECRET"]).contains("no {key} in the template"))
        #expect(message(good, [], ["z": "SECRET"]).contains("meaning of its own"))
        #expect(message(good, [], ["a b": "SECRET"]).contains("name of a value"))
        #expect(message("https://{s}.a.example/{z}/{x}/{y}", [""]).contains("subdomain"))
        #expect(message("https://{s}.a.example/{z}/{x}/{y}", ["a/b"]).contains("subdomain"))
        #expect(message("https://{s}a.example/{z}/{x}/{y}", [".."]).contains("subdomain"))
        #expect(message(good + String(repeating: "a", count: 8192)).contains("8192"))
        let used = "https://a.example/{v}/{z}/{x}/{y}"
        for value in [".", "..", "a/../b", "../a", "a\u{0}b", "a\nb"] {
            #expect(!message(used, [], ["v": value]).isEmpty)
        }
        #expect(message("https://a.example/{v}{v}/{z}/{x}/{y}", [], ["v": "."]).contains(".."))
        for value in ["a/b", "..", "/etc"] { #expect(!message("file:///{v}/{z}/{x}/{y}", [], ["v": value]).isEmpty) }
        #expect(message("https://{v}/{z}/{x}/{y}", [], ["v": "a@b"]).contains("part of a host's name"))
        #expect(message("https://{v}/{z}/{x}/{y}", [], ["v": ""]).contains("part of a host's name"))
        for text in [
            message(good, [], ["key": "SECRET"]), message("file:///{v}/{z}/{x}/{y}", [], ["v": "SECRET/"]),
            message("https://a.example/{z}/{x}?SECRET#"), message("https://SECRET@a.example/{z}/{x}/{y}"),
        ] {
            #expect(!text.contains("SECRET"))
        }
    }

    @Test
    func secretsAreNotShown() throws {
        let template = try URLTemplate(
            "https://a.example/WRITTEN/{z}/{x}/{y}?key={apikey}", values: ["apikey": "GIVEN"])
        let url = template.url(for: tile)
        for value in [template, url] as [Any] {
            var shown = "\(value) \(String(reflecting: value)) \(String(describing: Optional(value)))"
            dump(value, to: &shown)
            for child in Mirror(reflecting: value).children { shown += "\(child)" }
            #expect(!shown.contains("WRITTEN") && !shown.contains("GIVEN"), "\(shown)")
            #expect(shown.contains("a.example"))
        }
        #expect(url.text == "https://a.example/WRITTEN/3/2/5?key=GIVEN")
    }

    @Test(arguments: Seeds.list(200))
    func noTextTraps(seed: UInt64) throws {
        var random = SplitMix64(seed: seed)
        let parts = [
            "https://", "http://", "file://", "a.example", "{s}", "{z}", "{x}", "{y}", "{", "}", "/", "?", "#", "%",
            "%41", "..", ".", "é", "[", "]", ":", "@", " ", "{r}", "{v}", "{q}", "8", "\u{0}", "{bbox-epsg-3857}",
        ]
        for _ in 0..<50 {
            var template = random.oneIn(4) ? "" : parts[random.below(3)] + (random.oneIn(2) ? "h/{q}" : "")
            for _ in 0..<random.below(12) { template += random.pick(parts) }
            do throws(URLTemplateError) {
                let made = try URLTemplate(
                    template, subdomains: template.contains("{s}") ? ["a", "b"] : [],
                    values: template.contains("{v}") ? ["v": "w"] : [:])
                let url = made.url(for: tile)
                let isFile = url.scheme == .file
                #expect(url.path.hasPrefix("/") && (isFile || url.path.utf8.allSatisfy { (0x21...0x7E).contains($0) }))
                #expect(!url.path.prefix { $0 != "?" }.split(separator: "/").contains(".."))
            } catch {
                #expect(!error.message.isEmpty && (error.position ?? 1) >= 1)
                #expect((error.position ?? 1) <= template.count + 1)
            }
        }
    }
}
