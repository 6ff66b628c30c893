import ArgumentParser
import TileArchive
import TileStore

/// `tilegc cat`.
struct Cat: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "cat",
        abstract: "Writes the bytes of one entry to standard output.",
        discussion: """
            The bytes are those that are stored, checked against their SHA-256: what the server sent with a \
            Content-Encoding is still encoded ('tilegc show' names it).
            """)

    @OptionGroup var cache: CacheArgument
    @OptionGroup var key: KeyArgument

    func run() throws {
        let store = try cache.openForReading()
        guard let entry = try store.entry(for: key.key) else { throw try key.missing(in: store) }
        guard let blob = entry.blob else {
            throw Failure(
                .noInput,
                "\(key.key) has no bytes: it is a remembered response of status "
                    + "\(entry.metadata.response.status)")
        }
        switch try TileReader(store: store).bytes(of: key.key, { $0 == blob }) {
        case .bytes(let data, _):
            let output = StandardOutput()
            try output.write(data)
            try output.finish()
        case .gone: throw try key.missing(in: store)
        case .damaged:
            throw Failure(
                .inputOutput,
                "the bytes of \(key.key) are damaged or missing on disk: run 'tilegc verify --repair \(cache.cache)'")
        case .unreadable(let why): throw Failure(.inputOutput, why)
        }
        try store.close()
    }
}
