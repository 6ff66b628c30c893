import Foundation
import HTTPTypes
import Testing
import TileCacheTesting
import TileStore
import TileStoreTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// `tilegc shared` and two proxies, as processes, on a bucket of a real server, which `make check-s3` starts.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads, .onBucketServer)
struct SharedCommandTests {
    /// Tiles at zooms 0 to 3.
    private static let paths = (0...3).flatMap { z in
        (0..<(1 << z)).flatMap { x in (0..<(1 << z)).map { y in "\(z)/\(x)/\(y).png" } }
    }

    private static func tile(_ path: String) -> [UInt8] {
        [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A] + Array("tile \(path)".utf8)
    }

    /// An origin that fails while it is switched off.
    private static func origin(_ isOff: Locked<Bool>) async throws -> LocalOrigin {
        try await LocalOrigin.start { request in
            if isOff.withLock({ $0 }) { return LocalAnswer(.serviceUnavailable) }
            return LocalAnswer(
                .ok, [.contentType: "image/png", .cacheControl: "max-age=86400"],
                body: tile(String(request.path.dropFirst())))
        }
    }

    /// Starts a program with the server's keys.
    private func start(_ program: String, _ arguments: [String], _ server: BucketServer, secret: String? = nil) throws
        -> Child
    {
        try Child(
            [
                "AWS_ACCESS_KEY_ID=\(server.accessKey)", "AWS_SECRET_ACCESS_KEY=\(secret ?? server.secretKey)",
                "AWS_REGION=us-east-1", program,
            ] + arguments, of: "/usr/bin/env")
    }

    private func shared(_ arguments: [String], _ server: BucketServer, secret: String? = nil) throws -> Outcome {
        let child = try start(Child.tilegc, ["shared"] + arguments, server, secret: secret)
        // A sweep, or an expiry, takes some seconds even on an idle machine.
        while !child.hasEnded(within: 1000) {}
        return try child.wait()
    }

    /// What a command says as JSON; it has to succeed.
    private func figures(_ arguments: [String], _ server: BucketServer) throws -> [String: Any] {
        let outcome = try shared(arguments + ["--json"], server)
        guard outcome.status == 0 else { throw TestFailure("\(arguments): \(outcome.messages)") }
        return try outcome.json()
    }

    /// A running proxy.
    private struct Proxy {
        let child: Child
        let port: Int

        func get(_ path: String) throws -> (head: String, body: [UInt8]) {
            let wire = try Wire(port: port)
            wire.send("GET \(path) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            return (try #require(wire.take(through: "\r\n\r\n")), wire.takeAll())
        }

        /// The figures of the shared tier.
        func shared() throws -> [String: Any] {
            let body = try get("/_tileproxy/stats.json").body
            let report = try JSONSerialization.jsonObject(with: Data(body)) as? [String: Any]
            return try #require(report?["shared"] as? [String: Any])
        }

        func figure(_ name: String) throws -> Int { try #require(try shared()[name] as? Int) }

        /// Waits until it has read the bucket's index: before, it takes nothing from there.
        func isReady() throws { while try shared()["state"] as? String != "ok" { usleep(10_000) } }

        func end() throws {
            child.send(SIGTERM)
            while !child.hasEnded(within: 1000) {}
            #expect(try child.wait().status == 0, "\(child.said)")
        }
    }

    private func proxy(_ scratch: Scratch, _ name: String, _ source: String, _ url: String, _ server: BucketServer)
        throws -> Proxy
    {
        try scratch.write(
            Data("shared: {s3: \"\(url)\", timeout: 1s}\nsources:\n  \(source)\n".utf8), to: "\(name).yaml")
        let child = try start(
            Child.tileproxy, ["serve", "--cache", scratch(name), "--port", "0", "--config", scratch("\(name).yaml")],
            server)
        while !child.hasEnded(within: 1) {
            for line in child.said.split(separator: "\n") where line.hasSuffix("listening") {
                let address = try #require(line.split(separator: " ").first { $0.hasPrefix("address=") })
                let port = try #require(address.split(separator: ":").last.flatMap { Int($0) })
                let proxy = Proxy(child: child, port: port)
                try proxy.isReady()
                return proxy
            }
        }
        throw TestFailure("tileproxy ended: \(child.said)")
    }

    /// One sees a pyramid, the origin goes away, the other serves it; an expiry reaches both; sweeps remove it all.
    @Test func twoProxiesShareAPyramidThatIsExpiredAndSwept() async throws {
        guard let server = BucketServer.named() else { return }
        let scratch = try Scratch()
        let isOff = Locked(false)
        let origin = try await Self.origin(isOff)
        let source = "osm: {template: \"\(origin.url)/{z}/{x}/{y}.png\", zooms: 0-3}"
        var (url, a) = ("", Proxy?.none)
        // A proxy gives a write up after a second, which may be too short for a busy machine: then a new fleet begins.
        for attempt in 0..<10 {
            url = "\(server.url)/\(server.bucket)/fleet-\(UUID().uuidString.prefix(8).lowercased())"
            let proxy = try proxy(scratch, "a\(attempt)", source, url, server)
            for path in Self.paths {
                let answer = try proxy.get("/tiles/osm/\(path)")
                #expect(answer.head.hasPrefix("HTTP/1.1 200 ") && answer.body == Self.tile(path))
            }
            while try proxy.figure("waiting") > 0 { usleep(10_000) }
            #expect(try proxy.figure("stores") + proxy.figure("dropped") == 85)
            a = proxy
            if try proxy.figure("dropped") == 0 { break }
            try proxy.end()
            a = nil
        }
        let first = try #require(a, "no proxy could write 85 tiles")
        let counted = try figures(["stats", url], server)
        #expect(counted["objects"] as? Int == 85)
        #expect(counted["bytes"] as? Int == Self.paths.reduce(0) { $0 + Self.tile($1).count })
        #expect(try figures(["stats", url, "--source", "other"], server)["objects"] as? Int == 0)

        isOff.withLock { $0 = true }
        let b = try proxy(scratch, "b", source, url, server)
        for path in Self.paths {
            var answer = try b.get("/tiles/osm/\(path)")
            // A look that took longer than a second.
            while answer.head.hasPrefix("HTTP/1.1 50") {
                usleep(100_000)
                answer = try b.get("/tiles/osm/\(path)")
            }
            #expect(answer.head.hasPrefix("HTTP/1.1 200 ") && answer.body == Self.tile(path))
            #expect(answer.head.contains("tileproxy-shared; hit"), "\(answer.head)")
        }
        #expect(try b.figure("hits") == 85 && b.figure("misses") == 0)
        isOff.withLock { $0 = false }

        // Both ask again for what is expired, and for nothing else.
        #expect(try figures(["expire", url, "--source", "osm", "--zoom", "3"], server)["marks"] as? Int == 1)
        let (high, low) = (origin.counts["/3/0/0.png"] ?? 0, origin.counts["/2/0/0.png"])
        for (x, proxy) in [first, b].enumerated() {
            while origin.counts["/3/\(x)/0.png"] ?? 0 == high {
                #expect(try proxy.get("/tiles/osm/3/\(x)/0.png").body == Self.tile("3/\(x)/0.png"))
                usleep(10_000)
            }
            #expect(try proxy.get("/tiles/osm/2/0/0.png").body == Self.tile("2/0/0.png"))
        }
        #expect(origin.counts["/2/0/0.png"] == low)
        try first.end()
        try b.end()

        // A sweep that is killed while the bucket hangs has done no harm; others go on where the ones before have ended.
        if server.process != nil {
            try server.signal(SIGSTOP)
            let killed = try start(Child.tilegc, ["shared", "sweep", url, "--older-than", "1s"], server)
            killed.send(SIGKILL)
            _ = killed.hasEnded(within: 60_000)
            try server.signal(SIGCONT)
        }
        #expect(try figures(["sweep", url, "--older-than", "1h"], server)["deleted"] as? Int == 0)
        #expect(
            try figures(["sweep", url, "--older-than", "1s", "--max-objects", "0"], server)["deleted"] as? Int == 0)
        var deleted: [Int] = []
        // What was written in the last second is left to a later one.
        while deleted.reduce(0, +) < 85 {
            let step = try figures(["sweep", url, "--older-than", "1s", "--max-objects", "30"], server)
            #expect(step["failed"] as? Int == 0)
            deleted.append(try #require(step["deleted"] as? Int))
        }
        #expect(deleted.allSatisfy { $0 <= 30 } && deleted.reduce(0, +) == 85)
        #expect(try figures(["stats", url], server)["objects"] as? Int == 0)
    }

    /// A script can tell whether to try again.
    @Test func exitStatusesTellARefusalFromNoAnswer() throws {
        guard let server = BucketServer.named() else { return }
        let url = "\(server.url)/\(server.bucket)/statuses"
        let commands = [
            ["stats", url], ["sweep", url, "--older-than", "90d"], ["expire", url, "--source", "osm"],
        ]
        for command in commands {
            let outcome = try shared(command, server, secret: "wrong-secret")
            #expect(outcome.status == 77, "\(command): \(outcome.messages)")
            #expect(outcome.output.isEmpty && outcome.messages.hasPrefix("tilegc: "))
        }
        let none = try shared(["stats", "\(server.url)/there-is-no-such-bucket"], server)
        #expect(none.status == 66, "\(none.messages)")
        // Nobody listens there.
        for command in commands {
            let silent = [command[0], "http://127.0.0.1:1/\(server.bucket)"] + command.dropFirst(2)
            let outcome = try shared(silent, server)
            #expect(outcome.status == 74, "\(command): \(outcome.messages)")
        }
        #expect(try shared(["sweep", url], server).status == 64)
    }
}
