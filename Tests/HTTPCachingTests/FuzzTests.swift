import HTTPCaching
import HTTPTypes
import Testing
import TileStoreTesting

/// Nothing that comes from outside is a trap: random and damaged messages, extreme numbers and times.
@Suite(.timeLimit(.minutes(60)))
struct FuzzTests {
    @Test(arguments: Seeds.list(10))
    func noMessageIsATrap(seed: UInt64) {
        var make = MessageMaker(seed: seed &+ 1_000_000)
        for _ in 0..<25 {
            let (policy, request, response) = (make.policy(), make.request(), make.response())
            let (asked, received, now) = (make.time(), make.time(), make.time())
            _ = policy.storability(of: response, to: request)
            let freshness = policy.freshness(of: response, requestedAt: asked, receivedAt: received)
            #expect(freshness.lifetime >= 0)
            #expect((0...2_147_483_648).contains(freshness.stored.initialAge))
            #expect((0...2_147_483_648).contains(freshness.stored.age(at: now)))
            let stored = StoredResponse(
                status: response.status, fields: policy.fieldsToStore(response.headerFields),
                freshness: freshness.stored,
                selectingFields: Vary(response.headerFields).selectingFields(of: request.headerFields))
            _ = policy.selection(from: [stored, stored], for: make.fields())
            let conditional = ConditionalRequest(
                revalidating: [stored.validators, stored.validators], for: request, usesDate: make.random.oneIn(2))
            _ = conditional.outcome(of: make.response(), now: now)
            let preconditions = ClientPreconditions(request.headerFields)
            for role in [ClientPreconditions.Role.cache, .origin] {
                _ = preconditions.outcome(
                    for: stored.validators, status: response.status.code, method: request.method, role: role, now: now)
            }
            let length = Int64(make.number())
            var whole = stored
            whole.status = .ok
            _ = preconditions.rangeOutcome(
                of: whole, length: length, age: make.number(), boundary: make.junk(), now: now)
            _ = whole.notModified(age: make.number())
            _ = HeadOutcome(make.response(), stored: whole, length: length, now: now)
            _ = policy.freshen(whole, with: make.response(), to: request, requestedAt: asked, receivedAt: received)
            if let target = URIReference("https://tiles.example/a/b") {
                _ = Invalidation.targets(method: .post, target: target, response: response)
            }
            _ = response.headerFields.withoutConnectionFields
            _ = Via.contains(receivedBy: make.junk(), in: response.headerFields)
        }
    }

    @Test(arguments: Seeds.list(10))
    func noTextIsATrap(seed: UInt64) {
        var make = MessageMaker(seed: seed &+ 2_000_000)
        for _ in 0..<50 {
            let text = make.random.oneIn(3) ? make.value(of: make.random.pick(MessageMaker.names)) : make.junk()
            let now = make.time()
            if let date = HTTPDate(parsing: text, now: now) {
                #expect(HTTPDate(parsing: date.description, now: now) == date)
            }
            _ = EntityTag(text)
            _ = CacheControl(text)
            _ = ByteRanges(text)?.resolved(length: Int64(make.number()))
            if let reference = URIReference(text), let base = URIReference("http://a/b/c/d;p?q") {
                let resolved = base.resolving(reference)
                #expect(resolved.scheme != nil)
                _ = resolved.hasSameOrigin(as: base)
                _ = reference.resolving(base)
            }
            var status = CacheStatus(cache: text)
            status.detail = text
            status.timeToLive = make.number()
            #expect(status.description.utf8.allSatisfy { (32..<127).contains($0) })
            #expect(
                Via(receivedProtocol: text, receivedBy: text).description.utf8.allSatisfy { (32..<127).contains($0) })
        }
    }

    @Test(arguments: Seeds.list(10))
    func noNumberIsATrap(seed: UInt64) {
        var make = MessageMaker(seed: seed &+ 3_000_000)
        for _ in 0..<50 {
            let stored = StoredFreshness(
                storedAt: make.time(), initialAge: make.number(), expires: make.time(),
                staleWhileRevalidate: make.number(), staleIfError: make.number(),
                mustRevalidate: make.random.oneIn(4), noCache: make.random.oneIn(8), immutable: make.random.oneIn(4))
            var asking = RequestCacheControl()
            if make.random.oneIn(2) { asking.maxAge = make.number() }
            if make.random.oneIn(2) { asking.maxStale = make.number() }
            if make.random.oneIn(2) { asking.minFresh = make.number() }
            if make.random.oneIn(2) { asking.staleIfError = make.number() }
            let now = make.time()
            _ = stored.decision(asking: asking, at: now)
            _ = stored.mayServe(after: .status(make.number()), asking: asking, at: now)
            #expect((0...2_147_483_648).contains(stored.age(at: now)))
            _ = Age.initial(age: make.number(), date: make.time(), requestedAt: make.time(), receivedAt: now)
        }
    }

    @Test func hugeMessagesAreRead() {
        // Sixteen kilobytes of the worst: each must be read in one pass or be cut short.
        let worst = [
            String(repeating: ",", count: 1 << 14), String(repeating: "\"", count: 1 << 14),
            String(repeating: "a=\"", count: 1 << 13), String(repeating: "\\\"", count: 1 << 13) + "\"",
            String(repeating: "a=\"\\\",", count: 1 << 14), String(repeating: "/..", count: 1 << 13),
            String(repeating: "max-age=1,", count: 1 << 14), String(repeating: "0-0,", count: 1 << 13),
        ]
        for text in worst {
            var all = HTTPFields()
            for name in MessageMaker.names.compactMap({ HTTPField.Name($0) }) {
                all.append(HTTPField(name: name, value: text))
            }
            let response = HTTPResponse(status: .ok, headerFields: all)
            let request = HTTPRequest(
                method: .get, scheme: "https", authority: "tiles.example", path: "/", headerFields: all)
            _ = CachePolicy.shared.storability(of: response, to: request)
            _ = CachePolicy.shared.freshness(of: response, requestedAt: noon, receivedAt: noon)
            _ = CachePolicy.shared.fieldsToStore(all)
            _ = Vary.fields([.accept, .acceptEncoding, .cookie]).selectionText(for: all)
            _ = ClientPreconditions(all)
            _ = URIReference(text)
            _ = ByteRanges("bytes=" + text)
        }
    }

    @Test func moreFieldsThanAnybodySendsAreNoTrap() {
        let many = fields((0..<40_000).map { "X-\($0 % 50): a" })
        let stored = StoredResponse(
            status: .ok, fields: many, freshness: StoredFreshness(storedAt: noon, expires: noon))
        let update = HTTPResponse(status: .notModified, headerFields: many)
        let after = CachePolicy.shared.freshen(stored, with: update, to: request(), requestedAt: noon, receivedAt: noon)
        #expect(after.storability == .doNotStore(.fields))
        var full = fields((0..<65_000).map { _ in "X: a" })
        Via(receivedBy: "x").add(to: &full)
        CacheStatus(cache: "x").add(to: &full)
        #expect(full.count == 65_000)
    }
}
