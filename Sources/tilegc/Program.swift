import Dispatch
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Where `tilegc` begins.
@main
enum Program {
    /// Looks at what the process was started with, while it has one thread, and then runs the command line.
    ///
    /// Dispatch's own threads end the process where they can open no file. So nothing that starts them, a `main` that is
    /// `async` included, comes before the question whether there is room.
    static func main() {
        openStandardFiles()
        // A reader that has seen enough (`| head`) shows as EPIPE, which StandardOutput takes as the end.
        ignoreBrokenPipes()
        OpenFileLimit.raise()
        // For the cache, what goes in or out, and what Dispatch and an event loop need.
        if let shortage = OpenFileLimit.shortage(of: 24) { TileGC.fail(Failure(.inputOutput, shortage)) }
        Task {
            await TileGC.main()
            exit(0)
        }
        dispatchMain()
    }
}
