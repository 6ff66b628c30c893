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
    /// What the configuration says instead of a folder, so that browsers get Leaflet from the network.
    static let network = "network"

    /// Reads the files that a configuration names; `nil` if browsers get them from the network.
    init?(_ configuration: ProxyConfiguration) {
        guard configuration.leaflet != Self.network else { return nil }
        self.init(folder: configuration.leaflet ?? Self.debianFolder)
    }

    /// Reads the files; `nil` if the library is not there.
    init?(folder: String) {
        func read(_ name: String) -> ByteBuffer? {
            // Unreadable files count as not installed.
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

extension ProxyConfiguration {
    /// Looks for Leaflet in the folder that the operator names, so that a mistake shows at the start and not as a page
    /// that gets Leaflet from somewhere else.
    ///
    /// - Throws: ``ConfigError``.
    package func checkLeaflet() throws(ConfigError) {
        guard hasPage, let folder = leaflet, folder != LeafletFiles.network, LeafletFiles(folder: folder) == nil
        else { return }
        throw ConfigError(
            place: "configuration", key: "leaflet",
            "\(folder) has no leaflet.js (or leaflet.min.js) and leaflet.css that can be read; name Leaflet's folder, "
                + "say network for unpkg.com, or leave the key out")
    }
}
