import Foundation
import TileStore

/// How requests say who they come from.
enum UserAgent {
    /// This library.
    static let library = "swift-tile-cache/\(LibraryVersion.text)"

    /// The program's name and version, as far as they are known, and the library's.
    static let standard: String = {
        let bundle = Bundle.main
        let name = bundle.bundleIdentifier ?? ProcessInfo.processInfo.processName
        let version = bundle.object(forInfoDictionaryKey: "CFBundleShortVersionString") as? String
        let program = [name, version ?? ""].filter { !$0.isEmpty }.map(token).joined(separator: "/")
        return program.isEmpty ? library : "\(program) \(library)"
    }()

    /// Only what a token of RFC 9110 §5.6.2 may hold.
    private static func token(_ text: String) -> String {
        let allowed = Set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_+")
        return String(text.prefix(80).map { allowed.contains($0) ? $0 : "-" })
    }
}
