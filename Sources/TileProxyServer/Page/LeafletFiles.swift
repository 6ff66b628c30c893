import NIOCore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Leaflet as Debian's package `libjs-leaflet` installs it: read once when the server starts, so that no request ever
/// names a file.
struct LeafletFiles: Sendable {
    /// The media type and bytes of each file that is served, by its name below `leaflet/`.
    let files: [String: (type: String, bytes: ByteBuffer)]

    static let debianFolder = "/usr/share/javascript/leaflet"

    /// Reads the files; `nil` if the library is not there.
    init?(folder: String) {
        guard folder != "network" else { return nil }
        func read(_ name: String) -> ByteBuffer? {
            // What cannot be read is as good as not installed: the page then takes it from the network.
            guard let data = try? Data(contentsOf: URL(fileURLWithPath: folder + "/" + name)), data.count < 4 << 20
            else { return nil }
            return ByteBuffer(bytes: data)
        }
        guard let script = read("leaflet.min.js") ?? read("leaflet.js"), let style = read("leaflet.css") else {
            return nil
        }
        var files: [String: (type: String, bytes: ByteBuffer)] = [
            "leaflet.js": ("text/javascript; charset=utf-8", script), "leaflet.css": ("text/css; charset=utf-8", style),
        ]
        for name in ["layers", "layers-2x", "marker-icon", "marker-icon-2x", "marker-shadow"] {
            if let bytes = read("images/\(name).png") { files["images/\(name).png"] = ("image/png", bytes) }
        }
        self.files = files
    }
}
