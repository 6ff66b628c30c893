import Foundation
import HTTPCaching
import Logging
import NIOCore
import NIOEmbedded
import Testing
import TileStore
import TileStoreTesting

@testable import HTTPListener
@testable import TileProxyServer

@Suite(.timeLimit(.minutes(60)))
struct FiguresTests {
    private func figures() throws -> Statistics {
        let statistics = Statistics(startedAt: Timestamp(seconds: 1_700_000_000))
        let osm = try SourceName("osm")
        let (one, two) = (EmbeddedEventLoop(), EmbeddedEventLoop())
        statistics.stripe(for: osm, on: one).add(.hit, status: 200, bytes: 100)
        statistics.stripe(for: osm, on: two).add(.hit, status: 304, bytes: 0)
        statistics.stripe(for: osm, on: two).add(.miss, status: 404, bytes: 0)
        statistics.stripe(for: osm, on: one).add(.miss, status: 502, bytes: 20)
        statistics.stripe(for: osm, on: one).add(.none, status: 404, bytes: 0)
        statistics.upstream(osm) {
            $0.requests += 2
            $0.add(status: 200, bytes: 5000, seconds: 0.03)
            $0.add(status: 304, bytes: 0, seconds: 40)
            $0.bytesSaved += 4000
        }
        return statistics
    }

    /// The figures of an empty store with a limit.
    private func storeFigures() throws -> StoreStatistics {
        let clock = ManualClock()
        var configuration = StoreConfiguration()
        configuration.capacity = 100_000
        let files = SimulatedFileSystem(SimulatedDisk(clock: clock))
        let store = try TileStore(environment: clock.environment(files), configuration: configuration)
        defer { store.simulateKill() }
        return try store.statistics()
    }

    @Test
    func stripesAddUp() throws {
        let source = try #require(try figures().snapshot.sources.first)
        #expect(source.requests.hits == 2 && source.requests.misses == 1 && source.requests.errors == 1)
        #expect(source.requests.refused == 1 && source.requests.absent == 1 && source.requests.notModified == 1)
        #expect(source.requests.requests == 5 && source.requests.bytesSent == 120)
        #expect(source.requests.hitRatio == 2.0 / 3)
        #expect(RequestCounts().hitRatio == nil)
    }

    @Test
    func prometheusCanReadThem() throws {
        let store = try storeFigures()
        let text = PrometheusText(try figures().snapshot, store: store, evicted: RemovalReport()).text
        #expect(text.contains("\ntileproxy_requests_total{source=\"osm\",result=\"hit\"} 2\n"))
        #expect(text.contains("\ntileproxy_upstream_duration_seconds_bucket{source=\"osm\",le=\"0.05\"} 1\n"))
        #expect(text.contains("\ntileproxy_upstream_duration_seconds_bucket{source=\"osm\",le=\"30.0\"} 1\n"))
        #expect(text.contains("\ntileproxy_upstream_duration_seconds_bucket{source=\"osm\",le=\"+Inf\"} 2\n"))
        #expect(text.contains("\ntileproxy_cache_capacity_bytes 100000\n"))
        #expect(text.contains("\ntileproxy_cache_checkpoint_bytes \(store.checkpointBytes)\n"))
        #expect(text.contains("\ntileproxy_cache_journal_bytes \(store.journalBytes)\n") && store.journalBytes > 0)
        #expect(text.contains("\ntileproxy_cache_image_bytes \(store.imageBytes)\n"))
        var (helps, types) = (Set<Substring>(), Set<Substring>())
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ")
            if line.hasPrefix("# HELP ") {
                #expect(helps.insert(words[2]).inserted, "once each: \(line)")
            } else if line.hasPrefix("# TYPE ") {
                #expect(types.insert(words[2]).inserted && ["counter", "gauge", "histogram"].contains(words[3]))
            } else {
                #expect(words.count == 2 && Double(words[1]) != nil, "\(line)")
                let name = words[0].prefix { $0 != "{" }
                let base = ["_bucket", "_sum", "_count"].first { name.hasSuffix($0) }
                let family = base.map { name.dropLast($0.count) } ?? name
                #expect(types.contains(family) || types.contains(name), "\(line) belongs to what was announced")
            }
        }
        #expect(helps == types)
    }

    @Test
    func connectionsThatCouldNotBeAcceptedAreCounted() throws {
        let statistics = try figures()
        let errors = AcceptErrors(logger: Logger(label: "test")) { statistics.countAcceptFailure() }
        let isShortage = errors.pause(after: IOError(errnoCode: EMFILE, reason: "accept")) != nil
        let isNoShortage = errors.pause(after: IOError(errnoCode: ECONNABORTED, reason: "accept")) == nil
        #expect(isShortage && isNoShortage && errors.count == 1)
        let text = PrometheusText(statistics.snapshot, store: nil, evicted: RemovalReport()).text
        #expect(text.contains("\ntileproxy_accept_failures_total 1\n"))
    }

    @Test
    func sourcesOfOneTitleAreToldApart() throws {
        var configuration = ProxyConfiguration()
        configuration.sources = try [("a", "World"), ("b", "World"), ("c", "Roads")].map { name, title in
            var source = SourceConfiguration(
                name: try SourceName(name), template: "https://tiles.example/{z}/{x}/{y}.png")
            source.title = title
            return source
        }
        let report = StatsReport(
            try SourceTable(configuration), try figures().snapshot, store: nil, evicted: RemovalReport(),
            now: Timestamp(seconds: 0))
        #expect(report.sources.map(\.title) == ["World (a)", "World (b)", "Roads"])
    }

    @Test
    func anyMetricIsExplained() throws {
        let text = try PrometheusText(
            figures().snapshot, store: storeFigures(), evicted: RemovalReport()
        ).text
        let manual = try Examples.text("Docs/operations.md")
        for line in text.split(separator: "\n") where line.hasPrefix("# TYPE ") {
            let name = String(line.split(separator: " ")[2])
            #expect(manual.contains("`\(name)`"), "Docs/operations.md does not explain \(name)")
        }
    }

    @Test
    func theHistogramKnowsItsQuantiles() {
        var histogram = Histogram()
        #expect(histogram.quantile(0.5) == nil)
        for _ in 0..<98 { histogram.add(seconds: 0.02) }
        histogram.add(seconds: 3)
        histogram.add(seconds: 99)
        #expect(histogram.quantile(0.5) == 0.025 && histogram.quantile(0.99) == 5)
        #expect(histogram.quantile(1) == .infinity && histogram.count == 100)
    }

    private func line(agent: String? = "Maps/1", referrer: String? = nil) -> AccessLine {
        AccessLine(
            client: "192.0.2.7", time: HTTPDate(seconds: 1_700_000_000), method: "GET", path: "/tiles/osm/3/4/2.png",
            version: .http11, status: 200, bytes: 5000, referrer: referrer, agent: agent, cache: "hit", microseconds: 42
        )
    }

    @Test
    func theCombinedLogIsOneLine() {
        let text = String(decoding: line().bytes(.combined), as: UTF8.self)
        #expect(
            text == "192.0.2.7 - - [14/Nov/2023:22:13:20 +0000] \"GET /tiles/osm/3/4/2.png HTTP/1.1\" 200 5000 \"-\" "
                + "\"Maps/1\" hit 42\n")
        let hostile = String(decoding: line(agent: "a\" \u{1B}[2J\u{9B}\\").bytes(.combined), as: UTF8.self)
        #expect(hostile.contains("\"a\\x22 \\x1B[2J\\x9B\\x5C\""))
        let long = line(agent: String(repeating: "x", count: 100_000)).bytes(.combined)
        #expect(long.count < 1500)
    }

    @Test
    func aMessageThatWasRefusedHasALine() throws {
        let path = NSTemporaryDirectory() + "refused-\(UUID().uuidString).log"
        defer { try? FileManager.default.removeItem(atPath: path) }
        let statistics = Statistics(startedAt: Timestamp(seconds: 0))
        for format in [ProxyConfiguration.AccessLog.Format.combined, .json] {
            let log = try AccessLog(ProxyConfiguration.AccessLog(path: path, format: format))
            let observer = RequestObserver(statistics: statistics, log: log) { _ in false }
            observer.refused(status: 400, from: try SocketAddress(ipAddress: "192.0.2.7", port: 9))
            log.close()
        }
        let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n")
        #expect(lines.count == 2)
        #expect(lines.first?.hasPrefix("192.0.2.7 - - [") == true)
        #expect(lines.first?.hasSuffix("] \"-\" 400 0 \"-\" \"-\" none 0") == true)
        #expect(lines.last?.contains("\"method\":\"-\"") == true && lines.last?.contains("\"status\":400") == true)
    }

    @Test
    func theLogKeepsNoSecretsOfReferrers() {
        for format in [ProxyConfiguration.AccessLog.Format.combined, .json] {
            let line = line(referrer: "https://me:pw@maps.example/page?token=s3cret#x")
            let text = String(decoding: line.bytes(format), as: UTF8.self)
            #expect(text.contains("https://maps.example/page\"") && !text.contains("s3cret") && !text.contains("pw@"))
        }
    }

    @Test
    func theJSONLogIsJSON() throws {
        let text = String(decoding: line(agent: "a\"\n").bytes(.json), as: UTF8.self)
        #expect(text.hasSuffix("}\n") && text.contains("\"agent\":\"a\\\"\\n\"") && text.contains("\"status\":200"))
    }
}
