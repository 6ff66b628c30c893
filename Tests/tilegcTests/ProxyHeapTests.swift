#if os(Linux)
import Foundation
import HTTPTypes
import Testing
import TileCacheTesting
import TileStoreTesting

/// The memory of a running `tileproxy`, as the system sees it.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct ProxyHeapTests {
    /// A picture of about so many bytes, as far as its chunks tell.
    private static func picture(_ bytes: Int) -> [UInt8] {
        var png: [UInt8] = [0x89, 0x50, 0x4E, 0x47, 0x0D, 0x0A, 0x1A, 0x0A]
        func add(_ name: String, _ content: [UInt8]) {
            let count = UInt32(content.count)
            png += [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: count >> $0) }
            png += Array(name.utf8) + content + [0, 0, 0, 0]
        }
        add("IHDR", [0, 0, 1, 0, 0, 0, 1, 0, 8, 6, 0, 0, 0])
        add("IDAT", [UInt8](repeating: 0x5A, count: bytes))
        add("IEND", [])
        return png
    }

    private func resident(_ child: Child) throws -> Int {
        let status = try String(contentsOfFile: "/proc/\(child.pid)/status", encoding: .utf8)
        let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmRSS:") })
        return try #require(line.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) }) << 10
    }

    /// The port that a proxy says it listens on.
    private func port(of child: Child) throws -> Int {
        while !child.hasEnded(within: 1) {
            for line in child.said.split(separator: "\n") where line.hasSuffix("listening") {
                let address = try #require(line.split(separator: " ").first { $0.hasPrefix("address=") })
                return try #require(address.split(separator: ":").last.flatMap { Int($0) })
            }
        }
        throw TestFailure("tileproxy ended: \(child.said)")
    }

    @Test func theMemoryOfLargeTilesThatAreNotStoredGoesBackToTheSystem() async throws {
        let scratch = try Scratch()
        let answer = LocalAnswer(
            .ok, [.contentType: "image/png", .cacheControl: "no-store"], body: Self.picture(6 << 20))
        let origin = try await LocalOrigin.start { _ in answer }
        let child = try Child(
            [
                "serve", "--cache", scratch("cache"), "--port", "0", "--source",
                "big=\(origin.url)/{z}/{x}/{y}.png",
            ], of: Child.tileproxy)
        let port = try port(of: child)
        let before = try resident(child)
        for burst in 0..<4 {
            // All ask at once and read one after another, so that many bodies are in memory together.
            let clients = try (0..<24).map { _ in try Wire(port: port) }
            for (y, client) in clients.enumerated() {
                client.send("GET /tiles/big/7/\(burst)/\(y).png HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            }
            for client in clients {
                let head = try #require(client.take(through: "\r\n\r\n"))
                #expect(head.hasPrefix("HTTP/1.1 200 "))
                while client.more() {}
            }
        }
        // The last body is let go of when its connection closes, which may be after its client saw the end.
        var left = 30_000
        while try resident(child) > before + (40 << 20), left > 0, !child.hasEnded(within: 1) { left -= 1 }
        #expect(try resident(child) <= before + (40 << 20), "\(before >> 20) MiB before the bursts")
        child.send(SIGTERM)
        #expect(try child.wait().status == 0)
    }
}
#endif
