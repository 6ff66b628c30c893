import Testing
import TileStore
import TileStoreTesting

@testable import SharedTier

private let now = Timestamp(seconds: 1_800_000_000)

private func random(_ random: inout SplitMix64, _ sources: [SourceName]) -> Mark {
    let zoom = random.below(9)
    let side = 1 << zoom
    let (x, y) = (random.below(side), random.below(side))
    return Mark(
        source: random.pick(sources), zooms: random.below(zoom + 1)...zoom,
        columns: x...min(side - 1, x + random.below(9)), rows: y...min(side - 1, y + random.below(9)),
        time: now.adding(seconds: -Int64(random.below(1000))))!
}

private func key(_ random: inout SplitMix64, _ source: SourceName) throws -> TileKey {
    let z = random.below(10)
    return TileKey(source: source, tile: try TileAddress(z: z, x: random.below(1 << z), y: random.below(1 << z)))
}

private func read(_ text: String) -> Marks? { Array(text.utf8).withUnsafeBytes { Marks(json: $0) } }

@Suite struct MarksTests {
    private let osm, topo: SourceName

    init() throws { (osm, topo) = (try SourceName("osm"), try SourceName("topo")) }

    /// All listed tiles are marked, by few marks; where there are few tiles, no other one is.
    @Test(arguments: Seeds.list(100))
    func marksOfAListCoverItsTiles(seed: UInt64) throws {
        var source = SplitMix64(seed: seed)
        let count = source.pick([0, 1, 5, 40, 2000])
        var tiles = Set<PackedTile>()
        for _ in 0..<count {
            let z = source.pick([3, 7, 7, 7, 14])
            tiles.insert(PackedTile(z: z, x: source.below(1 << min(z, 9)), y: source.below(1 << min(z, 9))))
        }
        let marks = try Marks.expiring(osm, tiles: tiles.sorted(), at: now)
        #expect(marks.list.count <= Marks.mostOfList && marks.epochs.isEmpty)
        func isMarked(_ tile: PackedTile) throws -> Bool {
            marks.isExpired(
                TileKey(source: osm, tile: try TileAddress(z: tile.z, x: tile.x, y: tile.y)),
                askedAt: now.adding(seconds: -9))
        }
        for tile in tiles { #expect(try isMarked(tile), "seed \(seed)") }
        for _ in 0..<100 {
            let z = source.below(15)
            let tile = PackedTile(z: z, x: source.below(1 << z), y: source.below(1 << z))
            if try isMarked(tile) {
                #expect(tiles.contains { $0.z == z }, "a zoom of which none is listed")
                if count <= 5 { #expect(tiles.contains(tile), "seed \(seed)") }
            }
        }
    }

    /// A mark covers the tiles of its rectangle, and every tile on a lower zoom that has one of them below it.
    @Test(arguments: Seeds.list(200))
    func aMarkCoversWhatIsShownThere(seed: UInt64) throws {
        var source = SplitMix64(seed: seed)
        let mark = random(&source, [osm])
        for _ in 0..<100 {
            let tile = try #require(try key(&source, osm).tile)
            let isBelow = tile.z > mark.zooms.upperBound
            let shift = max(0, mark.zooms.upperBound - tile.z)
            let expected =
                !isBelow && mark.zooms.contains(tile.z)
                && mark.columns.contains { $0 >> shift == tile.x } && mark.rows.contains { $0 >> shift == tile.y }
            #expect(mark.covers(z: tile.z, x: tile.x, y: tile.y) == expected, "\(mark) \(tile)")
        }
    }

    /// Joining and leaving out only ever widens; and the order of merging does not matter for what is stale.
    @Test(arguments: Seeds.list(60))
    func nothingIsLostByMerging(seed: UInt64) throws {
        var source = SplitMix64(seed: seed)
        let lists = (0..<3).map { _ in (0..<source.below(30)).map { _ in random(&source, [osm, topo]) } }
        var parts = lists.map { list in
            var marks = Marks()
            for mark in list { marks.add(mark) }
            return marks
        }
        parts[0].raise(osm, to: Epoch(seconds: UInt32(source.below(1_800_000_000)), random: 3))
        let merged = parts[0].merged(parts[1], at: now).merged(parts[2], at: now)
        #expect(merged == parts[2].merged(parts[0].merged(parts[1], at: now), at: now))
        #expect(parts.allSatisfy { merged.includes($0) })
        #expect(merged.merged(merged, at: now) == merged)
        for _ in 0..<100 {
            let name = source.pick([osm, topo])
            let (key, asked) = (try key(&source, name), now.adding(seconds: -Int64(source.below(1100))))
            let tile = key.tile!
            let isMarked = lists.joined().contains {
                $0.source == key.source && $0.covers(z: tile.z, x: tile.x, y: tile.y)
                    && asked <= $0.time.adding(seconds: Marks.slack)
            }
            let isForgotten =
                asked.seconds <= Int64(merged.epoch(of: key.source).seconds) + Marks.slack
                && merged.epoch(of: key.source) != .first
            #expect(merged.isExpired(key, askedAt: asked) == (isMarked || isForgotten))
        }
        #expect(read(merged.json) == merged)
    }

    /// A thousand and more: the index stays small, and says no less.
    @Test func tooManyMarksAreMadeWider() throws {
        var source = SplitMix64(seed: 4)
        let sources = [osm, topo, try SourceName("sat")]
        var (marks, list) = (Marks(), [Mark]())
        for _ in 0..<1500 {
            let x = source.below(1 << 16)
            let mark = Mark(
                source: source.pick(sources), zooms: 10...16, columns: x...x, rows: x...x,
                time: now.adding(seconds: -Int64(source.below(100))))!
            list.append(mark)
            if list.count % 100 == 0 {
                var next = Marks()
                for mark in list.suffix(100) { next.add(mark) }
                marks = marks.merged(next, at: now)
            }
        }
        #expect(marks.list.count <= Marks.mostMarks)
        #expect(list.allSatisfy { mark in marks.list.contains { $0.includes(mark) } })
        #expect(read(marks.json) == marks)
    }

    @Test func marksOfMoreSourcesThanThereMayBeBecomeAboutAll() throws {
        var marks = Marks()
        var other = Marks()
        for number in 0..<Marks.mostMarks + 1 {
            let source = try SourceName("s\(number)")
            let mark = Mark(
                source: source, zooms: 0...0, columns: 0...0, rows: 0...0,
                time: Timestamp(seconds: Int64(1000 + number)))!
            if number % 2 == 0 { marks.add(mark) } else { other.add(mark) }
            marks.raise(source, to: Epoch(seconds: UInt32(500 + number), random: 0))
        }
        let all = marks.merged(other, at: Timestamp(seconds: 5000))
        #expect(all.list.count == Marks.mostMarks && all.epochs.count == Marks.mostEpochs)
        #expect(all.floor == Timestamp(seconds: 1000))
        #expect(all.includes(marks) && all.includes(other))
        let key = try TileKey("any/5/3/3")
        #expect(all.isExpired(key, askedAt: Timestamp(seconds: 1001)))
        #expect(!all.isExpired(key, askedAt: Timestamp(seconds: 1003)))
    }

    @Test func marksThatHaveOutlivedWhatTheyAreAboutGo() {
        var marks = Marks()
        marks.add(Mark(source: osm, zooms: 0...3, columns: 0...7, rows: 0...7, time: now)!)
        #expect(marks.merged(Marks(), at: now.adding(seconds: Marks.lifetime)).list.count == 1)
        #expect(marks.merged(Marks(), at: now.adding(seconds: Marks.lifetime + 1)).list.isEmpty)
        #expect(Marks.lifetime > Marks.longestLifetime)
    }

    @Test(arguments: [
        "", "[]", "{}", "{\"format\": 2}", "{\"format\": 1, \"floor\": -1}",
        "{\"format\": 1, \"epochs\": {\"a/b\": \"1-00000000\"}}",
        "{\"format\": 1, \"epochs\": {\"a\": \"x\"}}", "{\"format\": 1, \"epochs\": {\"a\": 3}}",
        "{\"format\": 1, \"marks\": [{}]}",
        mark("29", "0", "0"), mark("3", "8", "0"), mark("3", "-1", "0"), mark("3", "0", "9223372036854775807"),
        mark("3", "5, 4", "0"), mark("3", "0.5", "0"), mark("3", "0", "0", time: "0"),
        mark("3", "0", "0", time: "99999999999"),
        String(repeating: "[", count: 100_000), "{\"format\": 1, \"floor\": \"5\"}",
    ])
    func anIndexThatIsNoneIsRefused(text: String) { #expect(read(text) == nil) }

    private static func mark(_ zoom: String, _ columns: String, _ rows: String, time: String = "5") -> String {
        func range(_ text: String) -> String { text.contains(",") ? "[\(text)]" : "[\(text), \(text)]" }
        return
            "{\"format\": 1, \"marks\": [{\"source\": \"a\", \"zooms\": [0, \(zoom)], \"columns\": \(range(columns)), "
            + "\"rows\": \(range(rows)), \"time\": \(time)}]}"
    }

    @Test func whatIsNotKnownInAnIndexDoesNotCount() {
        #expect(read(Self.mark("3", "0", "7")) != nil)
        #expect(read("{\"format\": 1, \"later\": {\"a\": [1]}}") == Marks())
        let many = "{\"format\": 1, \"marks\": [" + Array(repeating: "{}", count: 1001).joined(separator: ",") + "]}"
        #expect(read(many) == nil)
        #expect(read("{\"format\": 1, \"text\": \"" + String(repeating: "x", count: Marks.longest) + "\"}") == nil)
    }
}

@Suite struct MarkAuthorTests {
    /// Several authors on one object that knows no locks.
    ///
    /// Each reads and writes when it likes; requests take their time, fail, and fail after they were carried out. Whoever has
    /// been told that its marks are there finds them there for ever.
    @Test(arguments: Seeds.list(400))
    func noMarkIsLost(seed: UInt64) throws {
        var source = SplitMix64(seed: seed)
        let osm = try SourceName("osm")
        var index = Marks()
        let count = 1 + source.below(5)
        let failsOneIn = source.pick([4, 20, 1_000_000])
        /// The slowest request.
        let slowest = source.pick([100_000_000, 1_000_000_000])
        struct Author {
            var value: MarkAuthor
            var marks: Marks
            /// What is carried out at a time, and what it is answered with later.
            var todo: [(at: UInt64, MarkAuthor.Action, answersAt: UInt64)] = []
            var isDone = false
            var hasGivenUp = false
        }
        var authors: [Author] = (0..<count).map { number in
            var marks = Marks()
            marks.add(Mark(source: osm, zooms: 8...8, columns: number...number, rows: 0...0, time: now)!)
            if number == 0 { marks.raise(osm, to: Epoch(seconds: 5, random: 1)) }
            return Author(value: MarkAuthor(adding: marks, at: now), marks: marks)
        }
        var events: [(at: UInt64, author: Int, event: MarkAuthor.Event?, write: Marks?)] = []
        func plan(_ author: Int, _ action: MarkAuthor.Action, at time: UInt64, _ source: inout SplitMix64) {
            let carriedOut = time + UInt64(1 + source.below(slowest / 2))
            let answered = carriedOut + UInt64(1 + source.below(slowest / 2))
            switch action {
            case .read:
                // Looked up when it is carried out.
                events.append((carriedOut, author, nil, nil))
            case .write(let marks):
                let fails = source.oneIn(failsOneIn)
                if !fails || source.oneIn(2) { events.append((carriedOut, -1, nil, marks)) }
                events.append((answered, author, fails ? .failed(mayHappen: true) : .written, nil))
            case .wait(let wait): events.append((time + wait, author, .waited, nil))
            case .done: authors[author].isDone = true
            case .giveUp: authors[author].hasGivenUp = true
            }
        }
        for number in authors.indices {
            let start = UInt64(source.below(6_000_000_000))
            let first = authors[number].value.begin(at: start)
            plan(number, first, at: start, &source)
        }
        var steps = 0
        while let next = events.indices.min(by: { events[$0].at < events[$1].at }) {
            steps += 1
            guard steps < 100_000 else { break }
            let event = events.remove(at: next)
            if let write = event.write {
                index = write
            } else if let what = event.event {
                let action = authors[event.author].value.on(what, at: event.at)
                plan(event.author, action, at: event.at, &source)
            } else {
                let answer: MarkAuthor.Event = source.oneIn(failsOneIn) ? .failed(mayHappen: false) : .index(index)
                events.append((event.at + UInt64(1 + source.below(slowest / 2)), event.author, answer, nil))
            }
            for author in authors where author.isDone { #expect(index.includes(author.marks), "after \(steps) steps") }
        }
        #expect(authors.allSatisfy { $0.isDone || $0.hasGivenUp })
        if failsOneIn == 1_000_000 { #expect(authors.allSatisfy { $0.isDone }) }
    }

    @Test func aBucketThatOnlyFailsIsGivenUp() {
        var author = MarkAuthor(adding: Marks(), at: now)
        var action = author.begin(at: 0)
        for time in 1..<100 where action != .giveUp {
            if case .wait = action {
                action = author.on(.waited, at: UInt64(time))
            } else {
                action = author.on(.failed(mayHappen: false), at: UInt64(time))
            }
        }
        #expect(action == .giveUp)
    }
}
