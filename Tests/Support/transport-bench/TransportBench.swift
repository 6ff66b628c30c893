import HTTPTypes
import TileCache
import TileCacheNIO
import TileCacheTesting

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Measures the transports against `curl` on one local origin; `Scripts/bench-transport.sh` runs it.
///
/// - `serve ZOOM`: tiles of 5,000 B up to a zoom; prints its address.
/// - `urls ADDRESS ZOOM`: the same tiles as a configuration for curl.
/// - `fetch nio|urlsession ADDRESS ZOOM COUNT`: fetches them all, COUNT at once, and prints what it took.
@main
struct TransportBench {
    static func main() async throws {
        let arguments = CommandLine.arguments.dropFirst()
        switch arguments.first {
        case "serve":
            let site = TileSite(zooms: 0...(Int(arguments[2]) ?? 6), fields: [.cacheControl: "max-age=3600"])
            let origin = try await LocalOrigin.start(remembers: false) { site.answer($0) }
            print(origin.url)
            fflush(nil)
            await Gate().wait()
        case "urls":
            for path in paths(toZoom: Int(arguments[3]) ?? 6) {
                print("url = \"\(arguments[2])\(path)\"\noutput = /dev/null")
            }
        case "fetch":
            let transport: any TileTransport =
                arguments[2] == "nio" ? AsyncHTTPClientTransport() : URLSessionTransport()
            try await fetch(
                transport, address: arguments[3], zoom: Int(arguments[4]) ?? 6, atOnce: Int(arguments[5]) ?? 16)
        default:
            print("serve ZOOM | urls ADDRESS ZOOM | fetch nio|urlsession ADDRESS ZOOM COUNT")
        }
    }

    private static func paths(toZoom last: Int) -> [String] {
        (0...last).flatMap { zoom in
            (0..<(1 << zoom)).flatMap { column in (0..<(1 << zoom)).map { "/\(zoom)/\(column)/\($0).png" } }
        }
    }

    private static func fetch(_ transport: any TileTransport, address: String, zoom: Int, atOnce: Int) async throws {
        let (clock, paths) = (ContinuousClock(), paths(toZoom: zoom))
        let authority = String(address.drop { $0 != "/" }.dropFirst(2))
        let (start, cpuBefore) = (clock.now, processorTime())
        let bytes = try await withThrowingTaskGroup { group in
            for worker in 0..<atOnce {
                group.addTask {
                    var bytes = 0
                    for index in stride(from: worker, to: paths.count, by: atOnce) {
                        let head = HTTPRequest(method: .get, scheme: "http", authority: authority, path: paths[index])
                        bytes += try await transport.send(TransportRequest(head: head)).body.count
                    }
                    return bytes
                }
            }
            return try await group.reduce(0, +)
        }
        let (took, cpu) = (start.duration(to: clock.now), processorTime() - cpuBefore)
        let seconds = took / .seconds(1)
        print(
            "\(paths.count) requests, \(bytes) B: \(Int(Double(paths.count) / seconds)) requests/s,",
            "\(Int(cpu / Double(paths.count) * 1e6)) µs of processor a request")
    }

    /// What this process has used in user and system mode, in seconds.
    private static func processorTime() -> Double {
        var usage = rusage()
        #if canImport(Darwin)
        getrusage(RUSAGE_SELF, &usage)
        #else
        getrusage(__rusage_who_t(0), &usage)
        #endif
        let times = [usage.ru_utime, usage.ru_stime]
        return times.reduce(0) { $0 + Double($1.tv_sec) + Double($1.tv_usec) / 1e6 }
    }
}
