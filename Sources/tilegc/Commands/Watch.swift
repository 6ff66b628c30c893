import ArgumentParser
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// `tilegc watch`.
struct Watch: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "watch",
        abstract: "Shows what is in a cache and what happens in it, again and again.",
        discussion: """
            Redraws its figures in a terminal; elsewhere it writes one line each interval. Puts are entries that any \
            process stored or refreshed since the last line; evicted blobs are those that evictions and removals took \
            away. It only reads, and follows the cache's journal: that costs little, however many processes write. In \
            large caches the entries are counted less often, so that this takes a twentieth of the time at most.

            Ends at SIGINT (control-C) or SIGTERM with status 0; with 66 when the cache is removed.
            """)

    @OptionGroup var cache: CacheArgument

    @Option(
        help: ArgumentHelp("How often: 0.1s to 1h (default: 2s).", valueName: "time"),
        transform: ArgumentValues.interval)
    var interval = 2000

    @Flag(
        help: """
            Write one line of JSON each interval: as 'stats --json', with time, countedAt, puts, evictedBlobs, \
            journalDamage and events.
            """)
    var json = false

    func run() throws {
        let output = StandardOutput(endsWithInterrupt: true)
        let watched = try WatchedCache(cache)
        Interrupt.watch()
        let isScreen = !json && isatty(STDOUT_FILENO) == 1 && !Progress.Screen(of: STDOUT_FILENO).isDumb
        var loop = WatchLoop(
            cache: cache.cache, form: json ? .json : isScreen ? .screen : .lines, interval: interval,
            look: watched.look, screen: { Progress.Screen(of: STDOUT_FILENO) },
            write: { text in
                try output.write(text)
                try output.finish()
                return !output.isClosed
            },
            wait: Interrupt.wait)
        try loop.run()
    }
}
