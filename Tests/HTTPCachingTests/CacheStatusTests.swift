import HTTPCaching
import HTTPTypes
import Testing

@Suite(.timeLimit(.minutes(60)))
struct CacheStatusTests {
    static func status(_ cache: String, _ change: (inout CacheStatus) -> Void) -> String {
        var status = CacheStatus(cache: cache)
        change(&status)
        return status.description
    }

    @Test func aHitIsReported() {
        #expect(Self.status("tileproxy") { $0.hit = true } == "tileproxy; hit", "9211 §2.1")
        let hit = Self.status("tileproxy") { ($0.hit, $0.timeToLive, $0.forward) = (true, -30, .stale) }
        #expect(hit == "tileproxy; hit; ttl=-30", "9211 §2.2: never with hit")
    }

    @Test func aForwardIsReported() {
        let text = Self.status("Tile Proxy") {
            ($0.forward, $0.forwardStatus, $0.stored, $0.collapsed) = (.uriMiss, 304, true, true)
            $0.detail = "a \"b\" \u{e9}"
        }
        #expect(text == #""Tile Proxy"; fwd=uri-miss; fwd-status=304; stored; collapsed; detail="a \"b\" ??""#)
        #expect(Self.status("1a") { $0.forward = .varyMiss } == #""1a"; fwd=vary-miss"#, "8941 §3.3.4 tokens")
        #expect(Self.status("") { $0.forward = .stale } == #"""; fwd=stale"#)
        #expect(Self.status("x") { $0.timeToLive = .max } == "x; ttl=999999999")
    }

    @Test func everyValueIsAStructuredField() {
        for cache in ["a", "a b", "\u{1F5FA}", "a\r\nb: c", "*x"] {
            let text = "x;a=" + Self.status(cache) { $0.detail = cache }
            #expect(CacheControl(targeted: .cdnCacheControl, in: fields("CDN-Cache-Control: " + text)) != nil)
        }
    }

    @Test func membersAreAddedNearerToTheClient() {
        var found = fields("Cache-Status: origin; hit", "Via: 1.1 origin")
        CacheStatus(cache: "mine").add(to: &found)
        Via(receivedBy: "mine").add(to: &found)
        #expect(found[.cacheStatus] == "origin; hit, mine")
        #expect(found[.via] == "1.1 origin, 1.1 mine", "9110 §7.6.3")
    }

    @Test func aViaIsCleanAndFindsLoops() {
        #expect(Via(receivedProtocol: "2", receivedBy: "a b\r\nc:80").description == "2 a-b--c:80")
        #expect(Via(receivedBy: "").description == "1.1 -")
        #expect(Via.contains(receivedBy: "Mine", in: fields("Via: 1.0 a, 1.1 mine (x)")))
        #expect(!Via.contains(receivedBy: "mine", in: fields("Via: 1.0 a, 1.1 mine2")))
        #expect(!Via.contains(receivedBy: "mine", in: fields("X: mine")))
    }
}
