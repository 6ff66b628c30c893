import Foundation
import HTTPTypes
import Testing
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// What is answered at once on both kinds of routes, and that every change shows.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct ReadyRouteTests {
    static let paths = ["/tiles/osm/3/4/2.png", "/a"]

    private func generic(_ fields: [String] = ["Cache-Control: max-age=60", "ETag: \"v1\""]) throws -> ScriptedOrigin {
        try ScriptedOrigin { request, wire in
            wire.send(reply("200 OK", fields, "origin"))
            return true
        }
    }

    /// Asks until the answer is ready.
    private func warm(_ path: String, _ lab: ReadyLab, _ client: ReadyLab.Client) throws {
        for _ in 0..<10 {
            let before = lab.answeredAtOnce.withLock { $0 }
            _ = try client.ask(.ready, path)
            if lab.answeredAtOnce.withLock({ $0 }) > before { return }
        }
        Issue.record("\(path) is never ready")
    }

    /// Where each tile had to be made ready by itself, all but those that were asked for before took the long way.
    @Test
    func aFreshTileIsAnsweredAtOnceThoughNobodyAskedForItBefore() async throws {
        try await ReadyLab.with(generic: generic()) { lab, client in
            for x in 0..<64 {
                let key = try lab.key(of: "/tiles/osm/6/\(x)/1.png")
                try lab.store.put(TileLab.png("\(x)"), for: key, metadata: lab.metadata { $0.etag = "\"\(x)\"" })
            }
            for x in 0..<64 {
                let answer = try client.ask(.ready, "/tiles/osm/6/\(x)/1.png")
                #expect(Data(answer.body) == TileLab.png("\(x)") && answer["ETag"] == "\"\(x)\"" && answer.isHit)
            }
            #expect(lab.answeredAtOnce.withLock { $0 } == 63, "all but the first of the source")
            #expect(lab.origin.count == 0)
        }
    }

    @Test
    func aFreshResourceIsAnsweredAtOnceThoughNobodyAskedForItBefore() async throws {
        try await ReadyLab.with(generic: generic()) { lab, client in
            let targets = (0..<8).flatMap { ["/fonts/\($0)", "/fonts/\($0)?query=\($0)"] }
            for target in targets { while try !client.ask(.long, target).isHit {} }
            let answers = try targets.map { try client.ask(.ready, $0) }
            #expect(lab.answeredAtOnce.withLock { $0 } == targets.count)
            #expect(try answers == targets.map { try client.ask(.long, $0) })
        }
    }

    @Test(arguments: paths)
    func whatChangesInTheStoreShowsInTheNextAnswer(_ path: String) async throws {
        try await ReadyLab.with(generic: generic()) { lab, client in
            let isTile = path.hasPrefix("/tiles")
            let key = isTile ? try lab.key(of: path) : try TileKey("root:/a")
            var source = EntrySelection()
            source.source = key.source
            let changes: [(String, () throws -> Void, String?)] = [
                ("put", { try lab.store.put(TileLab.png("put"), for: key, metadata: lab.metadata()) }, "put"),
                ("remove", { _ = try lab.store.remove([key]) }, nil),
                ("purge", { _ = try lab.store.remove(source) }, nil),
                ("expire", { _ = try lab.store.expire(source) }, nil),
                ("time", { lab.clock.advance(seconds: 61) }, nil),
                ("a clock that was set back", { lab.clock.advance(seconds: -100) }, nil),
            ]
            for (name, change, text) in changes {
                try warm(path, lab, client)
                try change()
                let before = lab.answeredAtOnce.withLock { $0 }
                let answer = try client.ask(.ready, path)
                if let text {
                    #expect(answer.text.hasSuffix(text) && answer.isHit, "\(name): \(answer)")
                } else {
                    #expect(answer["Cache-Status"]?.contains("fwd=") == true, "\(name): \(answer)")
                    #expect(lab.answeredAtOnce.withLock { $0 } == before, "\(name)")
                }
                _ = try lab.store.remove([key])
            }
        }
    }

    @Test(arguments: paths)
    func afterTheTablesWereReplacedAnswersAreReadyAgain(_ path: String) async throws {
        try await ReadyLab.with(generic: generic()) { lab, client in
            for _ in 0..<3 {
                try warm(path, lab, client)
                try lab.replaceTables()
                #expect(try client.ask(.ready, path).status == 200)
            }
            try warm(path, lab, client)
        }
    }

    @Test
    func aReloadOfTheSourcesShowsInTheNextAnswer() async throws {
        try await ReadyLab.with(generic: generic()) { lab, client in
            let path = Self.paths[0]
            try warm(path, lab, client)
            #expect(try client.ask(.ready, path)["Access-Control-Allow-Origin"] == "*")
            try lab.reload { $0[0].sharing = .origin("https://maps.example") }
            for _ in 0..<3 {
                #expect(try client.ask(.ready, path)["Access-Control-Allow-Origin"] == "https://maps.example")
            }
            try warm(path, lab, client)
            // Another one takes its place in the table.
            try lab.reload { $0 = [try SourceConfiguration(argument: "b=https://b.example/{z}/{x}/{y}.png")] + $0 }
            let other = try client.ask(.ready, "/tiles/b/3/4/2.png")
            #expect(other["Cache-Status"]?.contains("fwd=uri-miss") == true)
            #expect(try client.ask(.ready, path)["Access-Control-Allow-Origin"] == "https://maps.example")
            try lab.reload { $0.removeLast() }
            #expect(try client.ask(.ready, path).status == 404)
        }
    }

    @Test(arguments: paths)
    func whoHasItAlreadyGets304AtOnce(_ path: String) async throws {
        try await ReadyLab.with(generic: generic()) { lab, client in
            try warm(path, lab, client)
            let before = lab.answeredAtOnce.withLock { $0 }
            let answer = try client.ask(.ready, path, ["If-None-Match: \"v1\""])
            #expect(answer.status == 304 && answer["ETag"] == "\"v1\"" && answer["Content-Length"] == nil)
            #expect(lab.answeredAtOnce.withLock { $0 } == before + 1)
            #expect(try client.ask(.long, path, ["If-None-Match: \"v1\""]) == answer)
        }
    }

    @Test
    func rememberedAbsenceIsAnsweredAtOnce() async throws {
        try await ReadyLab.with(
            generic: generic(), tiles: { _ in TileLab.Answer(status: 404, fields: [.cacheControl: "max-age=60"]) }
        ) { lab, client in
            try warm(Self.paths[0], lab, client)
            let answer = try client.ask(.ready, Self.paths[0])
            #expect(answer.status == 404 && answer.isHit && answer["Content-Length"] == "0")
            #expect(lab.origin.count == 1)
        }
    }

    @Test
    func aRequestThatHasComeByBeforeIsNotAnsweredAtOnce() async throws {
        try await ReadyLab.with(viaName: "me", generic: generic()) { lab, client in
            try warm("/a", lab, client)
            let before = lab.answeredAtOnce.withLock { $0 }
            #expect(try client.ask(.ready, "/a", ["Via: 1.1 other"]).status == 200)
            #expect(lab.answeredAtOnce.withLock { $0 } == before + 1)
            for fields in [["Via: 1.1 other, 1.1 me"], ["Via: 1.1 other", "Via: 1.1 ME"]] {
                #expect(try client.ask(.ready, "/a", fields).status == 508)
            }
        }
    }

    /// A client chooses what selects a variant; it must not fill the table with them.
    @Test
    func variantsOfOneTargetAreBounded() async throws {
        try await ReadyLab.with(generic: generic(["Cache-Control: max-age=60", "Vary: Foo"])) { lab, client in
            for round in 0..<2 {
                for value in 0..<40 {
                    let answer = try client.ask(.ready, "/a", ["Foo: \(value)"])
                    #expect(answer.text == "origin" && answer.isHit == (round > 0))
                }
            }
            for value in 32..<40 { _ = try client.ask(.ready, "/a", ["Foo: \(value)"]) }
            #expect(lab.answeredAtOnce.withLock { $0 } <= 3 * ReadyTargets.variants)
        }
    }
}
