import Foundation
import TileStore

/// A process with the store and nothing else in it, for what cannot be measured in one that has done other things.
///
/// - `bench-child open FOLDER KEY` opens, reads one tile, prints `{"openSeconds":…,"residentBytes":…}`.
/// - `bench-child stats FOLDER` opens for reading, adds up the cache's figures, prints how many entries there are.
/// - `bench-child follow FOLDER` opens, prints a line, and for each key that it is given reads it and prints how many
///   microseconds that took, news of other processes included.
/// - `bench-child fill FOLDER N` makes a cache of so many entries, and `bench-child count WHAT FOLDER N` does something N
///   times: for counting instructions (Scripts/check-instructions.sh).
@main
struct BenchChild {
    static func main() throws {
        let arguments = CommandLine.arguments
        switch (arguments.dropFirst().first, arguments.count) {
        case ("open", 4): try open(arguments[2], key: try TileKey(arguments[3]))
        case ("stats", 3): try stats(arguments[2])
        case ("follow", 3): try follow(arguments[2])
        case ("fill", 4): try InstructionCount.fill(arguments[2], count: Int(arguments[3]) ?? 0)
        case ("count", 5): try InstructionCount.run(arguments[2], arguments[3], count: Int(arguments[4]) ?? 0)
        default:
            throw Failure(
                description:
                    "bench-child open FOLDER KEY | stats FOLDER | follow FOLDER | fill FOLDER N | count WHAT FOLDER N")
        }
        fflush(nil)
        // Nothing is closed: what closing would write must not help the next child.
        _exit(0)
    }

    private static func open(_ folder: String, key: TileKey) throws {
        let start = nanoseconds()
        let store = try TileStore(at: folder)
        let seconds = Double(nanoseconds() - start) / 1e9
        guard try store.read(key)?.data?.isEmpty == false else {
            throw Failure(description: "the tile \(key) is not there")
        }
        print("{\"openSeconds\":\(seconds),\"residentBytes\":\(residentBytes())}")
        withExtendedLifetime(store) {}
    }

    private static func stats(_ folder: String) throws {
        var configuration = StoreConfiguration()
        configuration.readOnly = true
        configuration.createIfMissing = false
        print(try TileStore(at: folder, configuration: configuration).statistics().entries)
    }

    private static func follow(_ folder: String) throws {
        let store = try TileStore(at: folder)
        print("open")
        fflush(nil)
        while let line = readLine() {
            let key = try TileKey(line)
            let start = nanoseconds()
            guard try store.read(key) != nil else { throw Failure(description: "the tile \(key) is not there") }
            print(Double(nanoseconds() - start) / 1e3)
            fflush(nil)
        }
    }

    struct Failure: Error, CustomStringConvertible { var description: String }

    private static func nanoseconds() -> UInt64 { DispatchTime.now().uptimeNanoseconds }

    /// The resident memory of this process.
    private static func residentBytes() -> Int {
        let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
        for line in status.split(separator: "\n") where line.hasPrefix("VmRSS:") {
            return (line.split(separator: " ").dropFirst().first.flatMap { Int($0) } ?? 0) * 1024
        }
        // Not Linux: the most that it ever was, which for a process that only opens a cache is close.
        var usage = rusage()
        return getrusage(0, &usage) == 0 ? Int(usage.ru_maxrss) : 0
    }
}
