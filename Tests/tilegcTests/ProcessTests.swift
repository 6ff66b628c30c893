import Foundation
import Testing
import TileStoreTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Real processes on one cache, killed at random moments.
@Suite(.serialized, .timeLimit(.minutes(60)), .ownThreads)
struct ProcessTests {
    /// One of the programs that work on the cache, started again whenever it ends.
    private final class Worker {
        let arguments: [String]
        private var child: Child
        private(set) var completed = 0
        private(set) var killed = 0

        init(_ arguments: [String]) throws {
            self.arguments = arguments
            child = try Child(arguments)
        }

        /// Starts it again if it has ended by itself, which has to be a success.
        func renew() throws {
            guard child.hasEnded(within: 0) else { return }
            try check(try child.wait())
            child = try Child(arguments)
        }

        /// Kills it and starts it again.
        func kill() throws {
            child.send(SIGKILL)
            try check(try child.wait())
            child = try Child(arguments)
        }

        /// Lets it come to its end.
        func finish() throws { try check(try child.wait()) }

        private func check(_ outcome: Outcome) throws {
            if outcome.signal == SIGKILL {
                killed += 1
            } else if outcome.status == 0 {
                completed += 1
            } else {
                throw TestFailure("tilegc \(arguments) ended with \(outcome.status ?? -1): \(outcome.messages)")
            }
        }
    }

    @Test func writersAndACollectorSurviveBeingKilled() throws {
        let seed = ProcessInfo.processInfo.environment["TILE_SEED"].flatMap { UInt64($0) } ?? 7
        var random = Seeded(seed)
        let scratch = try Scratch()
        let cache = scratch("cache")
        let pyramids = ["a": Pyramid(seed: seed &+ 1, zooms: 0...4), "b": Pyramid(seed: seed &+ 2, zooms: 0...4)]
        for (name, pyramid) in pyramids { try pyramid.write(to: scratch("in-\(name)")) }
        try succeed("import", cache, scratch("in-a"), "--source", "a")

        let workers = [
            try Worker(["import", cache, scratch("in-a"), "--source", "a"]),
            try Worker(["import", cache, scratch("in-b"), "--source", "b"]),
            try Worker(["gc", cache, "--max-bytes", "200KiB"]),
        ]
        for round in 0..<50 {
            let pause = Int.random(in: 0...40, using: &random)
            let victim = Int.random(in: 0..<workers.count, using: &random)
            var passed = 0
            while passed < pause {
                for worker in workers { try worker.renew() }
                usleep(1000)
                passed += 1
            }
            try workers[victim].kill()
            if round % 10 == 9 {
                let outcome = try tilegc("verify", cache, "--json")
                #expect(outcome.status == 0, "seed \(seed), round \(round): \(outcome.text) \(outcome.messages)")
            }
        }
        for worker in workers { try worker.finish() }
        #expect(workers.reduce(0) { $0 + $1.killed } > 10, "seed \(seed): processes were killed while they worked")
        #expect(workers.reduce(0) { $0 + $1.completed } > 10, "seed \(seed): processes came to their end, too")

        let verified = try tilegc("verify", cache, "--json")
        #expect(verified.status == 0, "seed \(seed): \(verified.text) \(verified.messages)")
        for (name, pyramid) in pyramids {
            try succeed("export", cache, scratch("out-\(name)"), "--source", name)
            let found = try files(in: scratch("out-\(name)"))
            for (tile, data) in found { #expect(pyramid.tiles[tile] == data, "seed \(seed): \(name)/\(tile)") }
            // What the collector took comes back.
            try succeed("import", cache, scratch("in-\(name)"), "--source", name)
            try succeed("export", cache, scratch("out-\(name)"), "--source", name)
            #expect(try files(in: scratch("out-\(name)")) == pyramid.tiles)
        }
        // Orphans of the killed go with the next collection.
        try succeed("gc", cache)
        let last = try tilegc("verify", cache, "--json").json()
        #expect(last["ok"] as? Bool == true)
        #expect(last["orphans"] as? Int == 0)
    }
}
