public import TileStore
// Scratch: replaced by the real one.
public struct URLTemplate: Sendable {
    let text: String
    let subdomains: [String]
    public init(_ text: String, subdomains: [String] = [], values: [String: String] = [:]) throws { self.text = text; self.subdomains = subdomains }
    func url(for tile: TileAddress) -> TileURL {
        var t = text
        func sub(_ a: String, _ b: String) { while let r = t.range(of: a) { t.replaceSubrange(r, with: b) } }
        sub("{z}", "\(tile.z)"); sub("{x}", "\(tile.x)"); sub("{y}", "\(tile.y)")
        let parts = t.split(separator: "/", maxSplits: 3, omittingEmptySubsequences: false)
        return TileURL(scheme: String(parts[0].dropLast()), authority: String(parts[2]), path: "/" + (parts.count > 3 ? String(parts[3]) : ""), isFile: parts[0] == "file:")
    }
}
import Foundation
struct TileURL: Sendable { var scheme: String; var authority: String; var path: String; var isFile: Bool }
