#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A small seeded generator: the same seed gives the same draws on every system.
package struct SplitMix64: RandomNumberGenerator, Sendable {
    private var state: UInt64

    package init(seed: UInt64) { state = seed }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }

    /// A number from 0 to below the bound.
    package mutating func below(_ bound: Int) -> Int { Int(next() % UInt64(max(1, bound))) }

    /// True once in so many draws.
    package mutating func oneIn(_ count: Int) -> Bool { below(count) == 0 }

    /// One element of a collection that is not empty.
    package mutating func pick<T>(_ choices: [T]) -> T { choices[below(choices.count)] }
}

/// Which seeds the property tests run.
package enum Seeds {
    private static func variable(_ name: String) -> UInt64? {
        getenv(name).flatMap { UInt64(String(cString: $0)) }
    }

    /// A share of the seeds for one argument of a parametrised test: `TILE_SEED=…` replays one, `TILE_SEEDS=n` runs n,
    /// otherwise the fixed list of `count` seeds.
    package static func share(_ part: Int, of parts: Int, count: Int) -> [UInt64] {
        if let one = variable("TILE_SEED") { return part == 0 ? [one] : [] }
        let total = variable("TILE_SEEDS") ?? UInt64(count)
        return (0..<total).filter { $0 % UInt64(parts) == UInt64(part) }
    }

    /// A fixed list, or the one seed that is being replayed.
    package static func list(_ count: Int) -> [UInt64] { share(0, of: 1, count: count) }
}

/// Delta debugging: the smallest part of a script found that still fails, by leaving out ever smaller stretches.
package func shrink<Step, Failure: Error>(
    _ script: [Step], while fails: ([Step]) throws(Failure) -> Bool
) throws(Failure) -> [Step] {
    var (best, chunk) = (script, max(1, script.count / 2))
    while true {
        var start = 0
        var progress = false
        while start < best.count {
            var candidate = best
            candidate.removeSubrange(start..<min(start + chunk, best.count))
            if try fails(candidate) {
                best = candidate
                progress = true
            } else {
                start += chunk
            }
        }
        if chunk == 1, !progress { return best }
        chunk = max(1, chunk / 2)
    }
}
