import SharedTier
import TileStore

/// The figures in Prometheus's text format (version 0.0.4); the names are explained in Docs/operations.md.
struct PrometheusText {
    private(set) var text = ""

    init(
        _ figures: Statistics.Snapshot, store: StoreStatistics?, evicted: RemovalReport, shared: SharedFigures? = nil
    ) {
        requests(figures)
        upstream(figures)
        add("refused_messages_total", "counter", "Messages that broke the rules of HTTP or a limit.") {
            $0.line("", figures.refusedMessages)
        }
        add("accept_failures_total", "counter", "Times that a connection could not be accepted.") {
            $0.line("", figures.acceptFailures)
        }
        add("tls_handshake_failures_total", "counter", "TLS connections that ended before encryption was agreed on.") {
            $0.line("", figures.handshakeFailures)
        }
        add("tiles_not_stored_total", "counter", "Tiles that were fetched and served but could not be stored.") {
            $0.line("", figures.notStored)
        }
        add("refresh_failures_total", "counter", "Refreshes in the background that failed.") {
            $0.line("", figures.refreshFailures)
        }
        add("config_reloads_total", "counter", "How often the configuration was read again, by result.") {
            $0.line("result=\"ok\"", figures.reloads)
            $0.line("result=\"error\"", figures.failedReloads)
        }
        add("start_time_seconds", "gauge", "When this process started, in seconds since 1970.") {
            $0.line("", Int(clamping: figures.startedAt.seconds))
        }
        add("evicted_blobs_total", "counter", "Blobs that this process evicted to keep the limits.") {
            $0.line("", evicted.removedBlobs)
        }
        add("evicted_bytes_total", "counter", "Allocated bytes that this process evicted.") {
            $0.line("", evicted.freedBytes)
        }
        if let shared { self.shared(shared) }
        if let store { self.store(store) }
    }

    private mutating func shared(_ figures: SharedFigures) {
        add("shared_looks_total", "counter", "Looks into the fleet's bucket, by what came of them.") {
            $0.line("result=\"hit\"", figures.hits)
            $0.line("result=\"miss\"", figures.misses)
            $0.line("result=\"skipped\"", figures.skipped)
        }
        add("shared_errors_total", "counter", "Looks and writes of the fleet's bucket that failed.") {
            $0.line("", figures.errors)
        }
        add("shared_stores_total", "counter", "Tiles written to the fleet's bucket.") { $0.line("", figures.stores) }
        add("shared_dropped_total", "counter", "Tiles that were not written to the fleet's bucket.") {
            $0.line("", figures.dropped)
        }
        add("shared_waiting", "gauge", "Tiles that wait to be written to the fleet's bucket.") {
            $0.line("", figures.waiting)
        }
        add("shared_open", "gauge", "Whether the fleet's bucket is left alone.") { $0.line("", figures.isOpen ? 1 : 0) }
        add("shared_milliseconds_total", "counter", "How long looks took that were answered.") {
            $0.line("", Int(figures.seconds * 1000))
        }
        add("shared_answers_total", "counter", "Looks that were answered.") { $0.line("", figures.answers) }
    }

    private mutating func requests(_ figures: Statistics.Snapshot) {
        add("requests_total", "counter", "Requests for tiles, by source and what the cache did.") { text in
            for source in figures.sources {
                let counts = source.requests
                text.lines(
                    of: source.name, by: "result",
                    [
                        ("hit", counts.hits), ("stale", counts.stale), ("revalidated", counts.revalidated),
                        ("miss", counts.misses), ("bypass", counts.bypassed), ("refused", counts.refused),
                        ("error", counts.errors),
                    ])
            }
        }
        each("absent_total", "Answers that say that there is no such tile.", figures) { $0.requests.absent }
        each("client_not_modified_total", "304 answers to clients.", figures) { $0.requests.notModified }
        each("sent_bytes_total", "Bytes of tiles sent to clients.", figures) { $0.requests.bytesSent }
        add("generic_requests_total", "counter", "Requests of the generic routes, by what the cache did.") { text in
            let counts = figures.other
            text.lines(
                of: nil, by: "result",
                [
                    ("hit", counts.hits), ("stale", counts.stale), ("revalidated", counts.revalidated),
                    ("miss", counts.misses), ("bypass", counts.bypassed + counts.refused), ("error", counts.errors),
                ])
        }
    }

    private mutating func upstream(_ figures: Statistics.Snapshot) {
        add("upstream_responses_total", "counter", "Answers from origins, by source and kind.") { text in
            for source in figures.sources {
                let counts = source.upstream
                text.lines(
                    of: source.name, by: "kind",
                    [
                        ("body", counts.bodies), ("not_modified", counts.notModified), ("other", counts.others),
                        ("server_error", counts.serverErrors), ("none", counts.failures),
                    ])
            }
        }
        each("upstream_requests_total", "Requests to origins.", figures) { $0.upstream.requests }
        each("upstream_failovers_total", "Requests that went on to a mirror.", figures) { $0.upstream.failovers }
        each("upstream_bytes_total", "Bytes of bodies received from origins.", figures) { $0.upstream.bytes }
        each("upstream_bytes_saved_total", "Bytes of tiles that a 304 saved.", figures) { $0.upstream.bytesSaved }
        add("upstream_duration_seconds", "histogram", "How long origins took, last byte included.") { text in
            for source in figures.sources {
                let name = "source=\"\(source.name)\""
                var below = 0
                for (bound, count) in zip(Histogram.bounds, source.upstream.latency.counts) {
                    below += count
                    text.line("\(name),le=\"\(bound)\"", below, suffix: "_bucket")
                }
                let total = source.upstream.latency.count
                text.line("\(name),le=\"+Inf\"", total, suffix: "_bucket")
                text.line(name, source.upstream.latency.sum, suffix: "_sum")
                text.line(name, total, suffix: "_count")
            }
        }
    }

    private mutating func store(_ store: StoreStatistics) {
        gauge("cache_entries", "Entries in the cache.", store.entries)
        gauge("cache_blobs", "Blobs in the cache: equal tiles are one.", store.blobs)
        gauge("cache_blob_bytes", "Bytes of blobs.", store.bytes)
        gauge("cache_allocated_bytes", "Bytes that the blobs take on disk.", store.allocatedBytes)
        gauge("cache_logical_bytes", "Bytes that the tiles would take without deduplication.", store.logicalBytes)
        gauge("cache_pinned_bytes", "Bytes on disk of blobs that regions pin.", store.pinnedBytes)
        gauge("cache_manifest_bytes", "Bytes of the manifest's files.", store.manifestBytes)
        gauge("cache_checkpoint_bytes", "Bytes of the manifest's checkpoint.", store.checkpointBytes)
        gauge("cache_journal_bytes", "Bytes of the manifest's journals.", store.journalBytes)
        gauge("cache_image_bytes", "Bytes of the index image, which only makes opening fast.", store.imageBytes)
        gauge("cache_fresh_entries", "Entries that are fresh.", store.fresh)
        gauge("cache_stale_entries", "Entries that are stale.", store.stale)
        gauge("cache_negative_entries", "Entries that remember that there is no tile.", store.negative)
        if let capacity = store.limits.capacity {
            gauge("cache_capacity_bytes", "The limit on bytes of blobs that no region pins.", capacity)
        }
        gauge("cache_entry_limit", "The limit on entries that no region pins.", store.limits.entryLimit)
    }

    // MARK: Writing

    private var name = ""

    private mutating func add(_ name: String, _ type: String, _ help: String, _ body: (inout Self) -> Void) {
        self.name = "tileproxy_" + name
        text += "# HELP \(self.name) \(help)\n# TYPE \(self.name) \(type)\n"
        body(&self)
    }

    private mutating func gauge(_ name: String, _ help: String, _ value: Int) {
        add(name, "gauge", help) { $0.line("", value) }
    }

    private mutating func each(
        _ name: String, _ help: String, _ figures: Statistics.Snapshot,
        _ value: ((name: SourceName, requests: RequestCounts, upstream: UpstreamCounts)) -> Int
    ) {
        add(name, "counter", help) { text in
            for source in figures.sources { text.line("source=\"\(source.name)\"", value(source)) }
        }
    }

    /// A line for each value of a label.
    private mutating func lines(of source: SourceName?, by label: String, _ values: [(value: String, count: Int)]) {
        let prefix = source.map { "source=\"\($0)\"," } ?? ""
        for (value, count) in values { line("\(prefix)\(label)=\"\(value)\"", count) }
    }

    // Names of sources are letters, digits, dot, underscore and hyphen, so labels need no escaping.
    private mutating func line(_ labels: String, _ value: some CustomStringConvertible, suffix: String = "") {
        text += name + suffix + (labels.isEmpty ? " " : "{\(labels)} ") + value.description + "\n"
    }
}
