import Foundation
import TileStore

/// Opens a cache, reads one tile, and prints what that took: a process with the store and nothing else in it.
///
/// `bench-child FOLDER KEY` prints `{"openSeconds":…,"residentBytes":…}`.
@main
struct BenchChild {
    static func main() throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 3 else { throw Failure(description: "bench-child FOLDER KEY") }
        let key = try TileKey(arguments[2])
        let start = nanoseconds()
        let store = try TileStore(at: arguments[1])
        let seconds = Double(nanoseconds() - start) / 1e9
        guard try store.read(key)?.data?.isEmpty == false else {
            throw Failure(description: "the tile \(key) is not there")
        }
        print("{\"openSeconds\":\(seconds),\"residentBytes\":\(residentBytes())}")
        fflush(nil)
        withExtendedLifetime(store) {}
        // Nothing is closed: what closing would write must not help the next child.
        _exit(0)
    }

    private struct Failure: Error, CustomStringConvertible { var description: String }

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
