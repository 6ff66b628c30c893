import Dispatch
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Where `tileproxy` begins.
@main
enum Program {
    /// Looks at what the process was started with, while it has one thread, and then runs the command line.
    ///
    /// Dispatch's own threads end the process where they can open no file. So nothing that starts them, a `main` that is
    /// `async` included, comes before the question whether there is room.
    static func main() {
        Heap.fixLimits()
        OpenFileLimit.raise()
        // As much as a proxy of one event loop needs. One of more asks again when it knows of how many.
        if let shortage = OpenFileLimit.shortage(of: 35) {
            Serve.complain(shortage)
            exit(74)
        }
        Task {
            await TileProxy.main()
            exit(0)
        }
        dispatchMain()
    }
}
