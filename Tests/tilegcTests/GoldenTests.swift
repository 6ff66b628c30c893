import Foundation
import Testing
import TileStoreTesting

/// Every command's report, as text and as JSON, on the sample cache.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct GoldenTests {
    struct Case: Sendable, CustomTestStringConvertible {
        var name: String
        var arguments: [String]
        var status: Int32 = 0
        var testDescription: String { name }
    }

    static let reports: [Case] = [
        Case(name: "stats", arguments: ["stats", "CACHE"]),
        Case(name: "ls", arguments: ["ls", "CACHE"]),
        Case(name: "ls-stale", arguments: ["ls", "CACHE", "--stale"]),
        Case(name: "show", arguments: ["show", "CACHE", "styles:light/style.json"]),
        Case(name: "show-absent", arguments: ["show", "CACHE", "osm/3/0/0"]),
        Case(name: "show-shared", arguments: ["show", "CACHE", "osm/2/0/0"]),
        Case(name: "gc", arguments: ["gc", "CACHE"]),
        Case(name: "gc-bytes", arguments: ["gc", "CACHE", "--max-bytes", "16KiB"]),
        Case(name: "gc-dry-run", arguments: ["gc", "CACHE", "--max-entries", "7", "--dry-run"]),
        Case(name: "gc-unused", arguments: ["gc", "CACHE", "--unused-for", "30d"]),
        Case(name: "limit", arguments: ["limit", "CACHE"]),
        Case(name: "limit-set", arguments: ["limit", "CACHE", "--bytes", "1.5GiB"]),
        Case(name: "rm", arguments: ["rm", "CACHE", "--zoom", "2", "--bbox", "-180,0,0,85"]),
        Case(name: "rm-nothing", arguments: ["rm", "CACHE", "--source", "nobody"]),
        Case(name: "expire", arguments: ["expire", "CACHE", "--source", "terrain"]),
        Case(name: "verify", arguments: ["verify", "CACHE"]),
        Case(name: "verify-quick", arguments: ["verify", "CACHE", "--quick"]),
        Case(name: "compact", arguments: ["compact", "CACHE"]),
        Case(name: "import", arguments: ["import", "CACHE", "TILES", "--source", "new"]),
        Case(name: "export", arguments: ["export", "CACHE", "OUT", "--source", "osm"]),
    ]

    @Test(arguments: reports, [false, true])
    func reportsAreAsRecorded(_ this: Case, json: Bool) throws {
        let scratch = try Scratch()
        let (cache, tiles, out) = (scratch("cache"), scratch("tiles"), scratch("out"))
        try Sample.make(at: cache)
        try Pyramid(seed: 1, zooms: 0...1).write(to: tiles)
        let places = ["CACHE": cache, "TILES": tiles, "OUT": out]
        let arguments = this.arguments.map { places[$0] ?? $0 } + (json ? ["--json"] : [])
        let outcome = try Child(arguments).wait()
        #expect(outcome.status == this.status)
        if json { for line in outcome.lines { _ = try JSONSerialization.jsonObject(with: Data(line.utf8)) } }
        let text = Golden.normalized(
            outcome.text + (outcome.messages.isEmpty ? "" : "--- messages\n\(outcome.messages)"),
            paths: [cache: "CACHE", tiles: "TILES", out: "OUT"])
        try Golden.check(text, this.name + (json ? ".json" : ".txt"))
    }

    @Test(arguments: [
        "", "stats", "ls", "show", "cat", "gc", "limit", "rm", "expire", "verify", "compact", "import", "export",
        "seed", "revalidate", "regions", "coverage", "watch", "info", "diff", "convert", "publish", "pull", "shared",
    ])
    func helpIsAsRecorded(_ command: String) throws {
        let outcome = try Child(command.isEmpty ? ["--help"] : [command, "--help"]).wait()
        #expect(outcome.status == 0)
        #expect(outcome.messages.isEmpty)
        try Golden.check(outcome.text, "help\(command.isEmpty ? "" : "-\(command)").txt")
    }

    @Test func versionIsPrinted() throws {
        #expect(try succeed("--version").text.hasPrefix("tilegc "))
    }
}
