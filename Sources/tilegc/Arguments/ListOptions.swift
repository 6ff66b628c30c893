import ArgumentParser
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// `--list`: the tiles that a renderer, osm2pgsql or another command has listed.
struct ListOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Only the tiles of this list, in all their scales and formats: z/x/y a line, as osm2pgsql, render_expired and tegola "
                + "write it; - for standard input.",
            valueName: "file"))
    var list: String?

    @Option(
        help: ArgumentHelp("Also the tiles above listed ones, up to this zoom.", valueName: "zoom"),
        transform: ArgumentValues.oneZoom)
    var parentsTo: Int?

    @Option(
        help: ArgumentHelp("Also the tiles below listed ones, down to this zoom.", valueName: "zoom"),
        transform: ArgumentValues.oneZoom)
    var childrenTo: Int?

    @Option(
        help: ArgumentHelp(
            "How lines are written: a separator, then z, x and y in their order (default: /zxy; ' xyz' as render_list reads them).",
            valueName: "format"),
        transform: ArgumentValues.listFormat)
    var listFormat: TileListFormat?

    func validate() throws {
        guard list == nil else { return }
        let names = [
            parentsTo.map { _ in "--parents-to" }, childrenTo.map { _ in "--children-to" },
            listFormat.map { _ in "--list-format" },
        ].compactMap { $0 }
        if let name = names.first { throw ValidationError("\(name) is about a list: name it with --list") }
    }

    /// Reads the whole list, before anything is changed.
    ///
    /// - Parameter source: The source whose keys may be in it.
    /// - Returns: `nil` if there is none.
    func tiles(of source: SourceName?) throws -> TileSet? {
        guard let list else { return nil }
        let file = list == "-" ? "standard input" : list
        let descriptor = list == "-" ? STDIN_FILENO : open(list, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Failure(.noInput, "cannot read the list \(file): \(systemText(errno))") }
        defer { if list != "-" { close(descriptor) } }
        var reader = TileListReader(listFormat ?? .slashes, source: source?.description)
        do {
            return try Self.read(descriptor, file, &reader).widened(parentsTo: parentsTo, childrenTo: childrenTo)
        } catch let error as TileListError {
            throw Failure(.wrongData, "\(file):\(error.line): \(error.message); nothing was done")
        } catch let error as StoreError {
            throw Failure(.wrongData, "\(file): \(error.message); nothing was done")
        }
    }

    private static func read(_ descriptor: Int32, _ file: String, _ reader: inout TileListReader) throws -> TileSet {
        let piece = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 18, alignment: 1)
        defer { piece.deallocate() }
        var builder = TileSetBuilder()
        var tiles: [PackedTile] = []
        while true {
            let count = systemRead(descriptor, piece)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw Failure(.inputOutput, "cannot read the list \(file): \(systemText(errno))") }
            if count == 0 { break }
            try reader.read(UnsafeRawBufferPointer(rebasing: piece[..<count]), into: &tiles)
            try builder.insert(tiles)
            tiles.removeAll(keepingCapacity: true)
        }
        try reader.finish(into: &tiles)
        try builder.insert(tiles)
        return try builder.set()
    }
}

private func systemRead(_ descriptor: Int32, _ piece: UnsafeMutableRawBufferPointer) -> Int {
    read(descriptor, piece.baseAddress, piece.count)
}

extension TileStore {
    /// How many lines of a selection's list name a tile that is not cached; `nil` without a list.
    func unknownLines(of selection: EntrySelection) throws -> Int? {
        try selection.tiles.map { try unknownLines(of: $0, source: selection.source) }
    }
}

/// What a report says of a list's unknown lines.
enum UnknownLines {
    static func fields(_ unknown: Int?) -> [(String, JSON)] { unknown.map { [("unknown", .integer($0))] } ?? [] }

    /// The end of a sentence.
    static func words(_ unknown: Int?) -> String {
        guard let unknown, unknown > 0 else { return "." }
        return unknown == 1
            ? "; 1 line names a tile that is not cached."
            : "; \(Figure.count(unknown)) lines name tiles that are not cached."
    }
}
