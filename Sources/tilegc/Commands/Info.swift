import ArgumentParser
import Foundation
import TileArchive
import TileSets
import TileStore

/// `tilegc info`.
struct Info: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "info",
        abstract: "Says what an archive or a published set is: its tiles, zooms, area, and what it says of itself.",
        discussion: """
            PATH is an MBTiles or PMTiles file, a z/x/y folder, or the folder or set.json of a published set. Of a folder the \
            tiles are counted by going through it; of the others nothing but what describes them is read. For a cache see \
            'tilegc stats'.
            """)

    @Argument(help: "The archive.")
    var path: String

    @Option(
        help: ArgumentHelp(
            "Refuse to count more tiles where an archive does not say how many it has (default: 10000000).",
            valueName: "n"),
        transform: ArgumentValues.count)
    var maxTiles: Int = 10_000_000

    @OptionGroup var report: ReportOptions

    func run() throws {
        guard case .archive(let archive) = try TileCollection(path) else {
            throw Failure(.usage, "\(path) is a cache: see 'tilegc stats \(path)'")
        }
        let tiles = try archive.tileCount ?? count(archive)
        let output = StandardOutput()
        if report.json {
            try output.line(json(archive, tiles))
        } else {
            for (name, value) in lines(archive, tiles) {
                try output.line(name.padding(toLength: 13, withPad: " ", startingAt: 0) + value.printable)
            }
        }
        try output.finish()
    }

    private func count(_ archive: any ArchiveReader) throws -> Int {
        Interrupt.watch()
        var (count, seen) = (0, 0)
        if let counting = archive as? any CountingReader {
            guard let found = try counting.tileCount(atMost: maxTiles) else { throw tooManyTiles(archive, maxTiles) }
            return found
        }
        try archive.forEachTile(stoppedBy: { Interrupt.isRequested }) { step in
            seen += 1
            guard seen <= maxTiles else { throw tooManyTiles(archive, maxTiles) }
            if case .tile = step { count += 1 }
            return !Interrupt.isRequested
        }
        if Interrupt.isRequested { throw Failure(.interrupted, "interrupted: the tiles are not counted") }
        return count
    }

    private func json(_ archive: any ArchiveReader, _ tiles: Int) -> JSON {
        let said = archive.metadata
        var members: [(String, JSON)] = [
            ("format", .string("\(archive.format)")), ("tiles", .integer(tiles)), ("name", .optional(said.name)),
            ("description", .optional(said.description)), ("attribution", .optional(said.attribution)),
            ("tileFormat", .optional(said.tileFormat)),
            ("zooms", said.zooms.map { .array([.integer($0.lowerBound), .integer($0.upperBound)]) } ?? .null),
            ("bbox", .optional(said.bounds)),
            (
                "layers",
                .array(
                    said.vectorLayers.map { layer in
                        .object([
                            ("id", .string(layer.id)), ("minzoom", .optional(layer.minzoom)),
                            ("maxzoom", .optional(layer.maxzoom)),
                            ("fields", .array(layer.fields.keys.sorted().map { .string($0) })),
                        ])
                    })
            ),
            ("modified", archive.modified.map { .string("\(Timestamp(seconds: $0))") } ?? .null),
        ]
        if let set = archive as? SetReader {
            let document = set.document
            members += [
                ("root", .string("\(set.version)")),
                ("lifetime", .optional(document.lifetime)),
                (
                    "versions",
                    .array(
                        ([(document.root, nil)] + document.former.map { ($0.root, $0.replaced) }).map {
                            (root: BlobDigest, replaced: Timestamp?) in
                            .object([
                                ("root", .string("\(root)")),
                                ("replaced", replaced.map { .string("\($0)") } ?? .null),
                            ])
                        })
                ),
            ]
        }
        return .object(members)
    }

    private func lines(_ archive: any ArchiveReader, _ tiles: Int) -> [(String, String)] {
        let said = archive.metadata
        var lines = [("format", "\(archive.format)"), ("tiles", Figure.count(tiles))]
        if let zooms = said.zooms { lines.append(("zooms", "\(zooms.lowerBound)-\(zooms.upperBound)")) }
        if let box = said.bounds { lines.append(("bbox", box.description)) }
        for (name, value) in [
            ("tile format", said.tileFormat), ("name", said.name), ("description", said.description),
            ("attribution", said.attribution),
        ] {
            if let value { lines.append((name, value)) }
        }
        if !said.vectorLayers.isEmpty {
            lines.append(("layers", said.vectorLayers.map(\.id).joined(separator: ", ")))
        }
        if let modified = archive.modified { lines.append(("modified", "\(Timestamp(seconds: modified))")) }
        if let set = archive as? SetReader {
            lines.append(("root", "\(set.version)"))
            for former in set.document.former {
                lines.append(("former", "\(former.root), replaced \(former.replaced)"))
            }
        }
        return lines
    }
}
