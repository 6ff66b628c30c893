import HTTPCaching
import HTTPTypes
import Testing
import TileStoreTesting

@Suite(.timeLimit(.minutes(60)))
struct PropertyTests {
    @Test(arguments: Seeds.list(10))
    func addingNoStoreNeverPermitsStoring(seed: UInt64) {
        var make = MessageMaker(seed: seed)
        for _ in 0..<20 {
            var (policy, request, response) = (make.policy(), make.request(), make.response())
            policy.overridesOrigin = false
            policy.targetedFields = []
            let before = policy.storability(of: response, to: request)
            response.headerFields.append(HTTPField(name: .cacheControl, value: "no-store"))
            let after = policy.storability(of: response, to: request)
            let control = CacheControl(response.headerFields)
            if control?.mustUnderstand != true { #expect(!after.isStorable, "9111 §5.2.2.5") }
            if after.isStorable { #expect(before.isStorable) }
            request.headerFields.append(HTTPField(name: .cacheControl, value: "no-store"))
            #expect(!policy.storability(of: response, to: request).isStorable, "9111 §5.2.1.5")
        }
    }

    @Test(arguments: Seeds.list(10))
    func aSharedCacheStoresNoMoreThanAPrivateOneWouldBeAllowed(seed: UInt64) {
        var make = MessageMaker(seed: seed)
        for _ in 0..<20 {
            let (request, response) = (make.request(), make.response())
            let shared = CachePolicy(kind: .shared, targetedFields: [])
            let mine = CachePolicy(kind: .private, targetedFields: [])
            let verdict = shared.storability(of: response, to: request)
            // Only an s-maxage, or the public that goes with it, is a permission for shared caches alone.
            let control = CacheControl(response.headerFields) ?? CacheControl()
            if verdict.isStorable, control.sharedMaxAge == nil {
                #expect(mine.storability(of: response, to: request).isStorable)
            }
        }
    }

    @Test(arguments: Seeds.list(10))
    func freshnessEndsOnceAndForAll(seed: UInt64) {
        var make = MessageMaker(seed: seed)
        for _ in 0..<20 {
            let (policy, response) = (make.policy(), make.response())
            let stored = policy.freshness(of: response, requestedAt: noon, receivedAt: noon).stored
            var wasFresh = true
            var age = 0
            for step in stride(from: 0, through: 40_000, by: 997) {
                let now = noon.plus(step)
                let fresh = stored.isFresh(at: now)
                #expect(wasFresh || !fresh, "monotone in now")
                #expect(stored.age(at: now) >= age, "age grows")
                (wasFresh, age) = (fresh, stored.age(at: now))
                #expect(fresh == (stored.staleness(at: now) < 0))
            }
        }
    }

    @Test(arguments: Seeds.list(10))
    func nothingIsServedThatMustBeRevalidated(seed: UInt64) {
        var make = MessageMaker(seed: seed)
        for _ in 0..<50 {
            let policy = make.policy()
            let stored = policy.freshness(of: make.response(), requestedAt: noon, receivedAt: noon).stored
            let asking = RequestCacheControl(make.fields())
            let now = noon.plus(make.random.below(8000))
            let decision = stored.decision(asking: asking, at: now)
            switch decision {
            case .fresh(let age):
                #expect(stored.isFresh(at: now) && !stored.noCache && !asking.noCache)
                #expect(age == stored.age(at: now))
            case .stale, .staleWhileRevalidate:
                #expect(!stored.isFresh(at: now) && !stored.noCache && !stored.mustRevalidate && !asking.noCache)
            case .revalidate(let cause, ifOriginFails: let use):
                #expect(!asking.onlyIfCached)
                #expect((cause == .stale) == (!stored.isFresh(at: now) && !stored.noCache))
                if stored.noCache || (stored.mustRevalidate && cause == .stale) { #expect(use == .never) }
            case .gatewayTimeout:
                #expect(asking.onlyIfCached)
            }
            if stored.mayServe(after: .status(503), asking: asking, at: now) {
                #expect(stored.mayServe(after: .unreachable, asking: asking, at: now))
            }
        }
    }

    @Test(arguments: Seeds.list(10))
    func storingTwiceStoresTheSame(seed: UInt64) {
        var make = MessageMaker(seed: seed)
        for _ in 0..<20 {
            let policy = make.policy()
            let once = policy.fieldsToStore(make.fields())
            #expect(policy.fieldsToStore(once) == once)
            #expect(!once.contains(.connection) && !once.contains(.age) && !once.contains(.transferEncoding))
        }
    }

    @Test(arguments: Seeds.list(10))
    func matchingAgreesWithTheSelectionText(seed: UInt64) {
        var make = MessageMaker(seed: seed)
        for _ in 0..<30 {
            let vary = Vary(make.fields())
            let (one, other) = (make.fields(), make.fields())
            if vary == .any {
                #expect(!vary.matches(one, one))
                #expect(vary.selectionText(for: one) == nil)
            } else {
                let same = vary.selectionText(for: one) == vary.selectionText(for: other)
                #expect(vary.matches(one, other) == same)
                #expect(vary.matches(one, one))
                #expect(vary.selectionText(for: one)?.utf8.allSatisfy { $0 == 10 || (32..<127).contains($0) } ?? false)
            }
        }
    }

    @Test(arguments: Seeds.list(10))
    func rangesLieWithinTheBodyAndApart(seed: UInt64) {
        var random = SplitMix64(seed: seed)
        for _ in 0..<20 {
            let length = Int64(random.below(2000))
            func spec() -> String {
                let start = random.below(2500)
                switch random.below(3) {
                case 0: return "-\(start)"
                case 1: return "\(start)-"
                default: return "\(start)-\(start + random.below(300))"
                }
            }
            let text = "bytes=" + (0..<(1 + random.below(8))).map { _ in spec() }.joined(separator: ",")
            guard let asked = ByteRanges(text) else { continue }
            let ranges = asked.resolved(length: length)
            for (index, range) in ranges.enumerated() {
                #expect(range.lowerBound >= 0 && range.upperBound <= length && !range.isEmpty)
                for other in ranges[(index + 1)...] { #expect(!range.overlaps(other)) }
            }
            // Each byte that was asked for is there.
            for spec in asked.specs {
                let wanted: Int64? =
                    switch spec {
                    case .from(let first, _): first < length ? first : nil
                    case .last(let count): count > 0 && length > 0 ? length - 1 : nil
                    }
                if let wanted { #expect(ranges.contains { $0.contains(wanted) }) }
            }
        }
    }

    @Test(arguments: Seeds.list(10))
    func aConfirmedResponseIsAsFreshAsANewOne(seed: UInt64) {
        var make = MessageMaker(seed: seed)
        for _ in 0..<20 {
            let policy = CachePolicy(kind: make.random.oneIn(2) ? .shared : .private)
            var head = make.response()
            head.status = .ok
            head.headerFields[.date] = noon.description
            let stored = StoredResponse(
                status: head.status, fields: policy.fieldsToStore(head.headerFields),
                freshness: policy.freshness(of: head, requestedAt: noon, receivedAt: noon).stored)
            let later = noon.plus(5000)
            let update = HTTPResponse(status: .notModified, headerFields: [.date: later.description])
            let after = policy.freshen(stored, with: update, to: request(), requestedAt: later, receivedAt: later)
            var again = HTTPResponse(status: .ok, headerFields: stored.fields)
            again.headerFields[.date] = later.description
            let fresh = policy.freshness(of: again, requestedAt: later, receivedAt: later)
            #expect(after.freshness == fresh)
        }
    }
}
