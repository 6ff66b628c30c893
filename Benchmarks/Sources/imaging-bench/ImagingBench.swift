import Foundation
import TileImaging
import TileStore

/// How long it takes to make a tile from its ancestor: decode, crop, scale, encode.
///
/// `imaging-bench [FILE…]`: pictures of each format to measure; without any, a tile of the sample. Each is enlarged to its
/// own size from its four quarters in turn, and from four parts three zooms on. Medians, in milliseconds.
@main
struct ImagingBench {
    static let rounds = 200

    static func main() throws {
        var files = Array(CommandLine.arguments.dropFirst())
        if files.isEmpty { files = ["Sample/world/3/4/2.png"] }
        print("file                              picture          bytes  1 zoom on: ms   bytes  3 zooms on: ms   bytes")
        for file in files {
            let data = try Data(contentsOf: URL(fileURLWithPath: file))
            let header = try TileImage.header(of: data)
            let kind = "\(header.format.name)\(header.hasPalette ? " palette" : "") \(header.width)x\(header.height)"
            var line = left(file.split(separator: "/").suffix(2).joined(separator: "/"), 34) + left(kind, 16)
            line += right(data.count, 6)
            for depth in [1, 3] {
                let (time, size) = try measure(data, depth)
                line += right(String(format: "%.2f", time), depth == 1 ? 15 : 16) + right(size, 8)
            }
            print(line)
        }
    }

    /// Median milliseconds and mean bytes.
    static func measure(_ data: Data, _ depth: Int) throws -> (Double, Int) {
        let last = (1 << depth) - 1
        let tiles = try [(0, 0), (last, 0), (0, last), (last, last)].map { try TileAddress(z: depth, x: $0.0, y: $0.1) }
        let overzooms = tiles.compactMap { Overzoom(of: $0, from: 0) }
        var (times, bytes): ([Double], Int) = ([], 0)
        for round in 0..<rounds + 8 {
            let start = DispatchTime.now().uptimeNanoseconds
            let made = try TileImage.overzoomed(data, overzooms[round % overzooms.count])
            let nanoseconds = DispatchTime.now().uptimeNanoseconds - start
            // The first ones find cold caches.
            guard round >= 8 else { continue }
            times.append(Double(nanoseconds) / 1e6)
            bytes += made.count
        }
        times.sort()
        return (times[times.count / 2], bytes / rounds)
    }

    static func left(_ text: String, _ width: Int) -> String {
        text + String(repeating: " ", count: max(1, width - text.count))
    }

    static func right(_ value: some CustomStringConvertible, _ width: Int) -> String {
        let text = value.description
        return String(repeating: " ", count: max(1, width - text.count)) + text
    }
}
