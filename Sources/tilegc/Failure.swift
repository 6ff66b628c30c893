import TileArchive
import TileStore

/// The exit statuses that scripts may rely on (those of sysexits.h, where it has one).
enum ExitStatus: Int32 {
    /// The check found something: damage; or tiles are missing after a seed or a revalidation.
    case found = 1
    /// The command line does not say what to do.
    case usage = 64
    /// A line of a list is wrong; nothing was done.
    case wrongData = 65
    /// There is no such cache, entry, file or folder, or it is something else.
    case noInput = 66
    /// The operating system refused, the disk is full, another process is in the way.
    case inputOutput = 74
    /// A bucket's server refused: the keys are wrong, or do not permit it.
    case refused = 77
    /// Stopped by an interrupt between two steps (128 + SIGINT, as shells have it).
    case interrupted = 130
}

/// Ends a command: with which status, and one line that says what happened and what to do.
struct Failure: Error {
    let status: ExitStatus
    let message: String

    init(_ status: ExitStatus, _ message: String) {
        self.status = status
        self.message = message
    }

    /// What the store refused.
    init(_ error: StoreError) {
        switch error.code {
        case .noSuchCache, .notACache, .unknownFormat: status = .noInput
        case .invalidKey, .invalidValue: status = .usage
        default: status = .inputOutput
        }
        message = error.message
    }
    /// What is wrong with an archive.
    init(_ error: ArchiveError) {
        switch error.code {
        case .notFound, .notAnArchive, .unsupported: status = .noInput
        case .invalidValue, .tooMany: status = .usage
        default: status = .inputOutput
        }
        message = error.message
    }
}
