import TileCache
import TileStore

@testable import TileProxyServer

extension FuzzTarget {
    /// What people write.
    static let settings = [
        FuzzTarget(name: "url-template") { bytes in
            let text = String(decoding: bytes, as: UTF8.self)
            guard let template = try? URLTemplate(text, subdomains: text.contains("{s}") ? ["a", "b"] : []),
                let tile = try? TileAddress(z: 12, x: 2000, y: 1000, scale: 2, format: "png")
            else { return }
            let url = template.url(for: tile)
            try promise(
                !url.text.utf8.contains { $0 < 0x21 || $0 == 0x7F } || url.scheme == .file, "a control in \(url.text)")
            if url.scheme != .file {
                try promise(template.hosts.contains { url.authority.hasPrefix($0) }, "another host")
            }
        },
        FuzzTarget(name: "configuration") { bytes in
            let text = String(decoding: bytes, as: UTF8.self)
            var configuration = ProxyConfiguration()
            let places = SecretPlaces(environment: { _ in nil }, file: { _ in "secret" })
            do throws(ConfigError) { try configuration.read(yaml: text, file: "fuzz", secrets: places) } catch {
                return try promise(!error.description.isEmpty, "an error without words")
            }
            try promise(configuration.listen.count < 1000, "listeners without end")
        },
    ]
}
