/// Contestants that take turns, round by round, so that whatever slows the machine down slows all of them.
struct Contest {
    /// The samples of each contestant, one a round.
    private(set) var samples: [String: [Double]] = [:]

    /// Runs rounds.
    ///
    /// Every other round goes through the contestants in the opposite order, so that none always comes right after the
    /// same one.
    mutating func run(rounds: Int, _ contestants: [(name: String, body: (Int) throws -> Double)]) throws {
        for round in 0..<rounds {
            for (name, body) in round % 2 == 0 ? contestants : contestants.reversed() {
                samples[name, default: []].append(try body(round))
            }
        }
    }

    /// Runs one round in which the contestants take turns at small steps, each round's value being the sum of its steps
    /// divided by a number: for work whose cost drifts within a round.
    mutating func run(steps: Int, dividingBy count: Double, _ contestants: [(name: String, body: (Int) throws -> Void)])
        throws
    {
        var sums = [Double](repeating: 0, count: contestants.count)
        for step in 0..<steps {
            for turn in contestants.indices {
                let index = (turn + step) % contestants.count
                sums[index] += try seconds { try contestants[index].body(step) }
            }
        }
        for (index, sum) in sums.enumerated() { samples[contestants[index].name, default: []].append(sum / count) }
    }

    /// The median of one contestant.
    func median(of name: String) -> Double { tile_bench.median(samples[name] ?? []) }

    /// The median of the ratios of two contestants within each round.
    func ratio(_ a: String, to b: String) -> Double {
        tile_bench.median(zip(samples[a] ?? [], samples[b] ?? []).map { $0 / $1 })
    }
}
