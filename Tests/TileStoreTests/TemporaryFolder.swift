import Foundation

/// A folder of its own on the real disk for one test, removed when the value goes.
final class TemporaryFolder {
    let path: String

    init() { path = NSTemporaryDirectory() + "tile-store-\(UUID().uuidString)" }

    deinit {
        // What cannot be removed is left to the system's cleaning of temporary files.
        do { try FileManager.default.removeItem(atPath: path) } catch { print("left behind: \(path): \(error)") }
    }
}
