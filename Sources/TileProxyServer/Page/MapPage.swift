import HTTPWire
import NIOCore
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The page with map and figures: one document, its scripts and style inside, made once when the server starts.
struct MapPage: Sendable {
    /// Where Leaflet comes from.
    enum Leaflet: Sendable, Equatable {
        /// From this server.
        case own
        /// From the public network for such things, with the digests that its files must have.
        case network
    }

    /// The document.
    let html: ByteBuffer
    /// Its `Content-Security-Policy`: what the page may load and run, and nothing else.
    let policy: String
    /// For `If-None-Match`.
    let tag: String

    /// The page's own scripts, in the order in which they run.
    static let scripts = [pageToolsScript, vectorTileScript, vectorMapScript, script]

    static let networkBase = "https://unpkg.com/leaflet@1.9.4/dist/"
    static let networkScriptDigest = "sha256-20nQCchB9co0qIjJZRGuk2/Z9VM+kNiyxNV1lvTlZBo="
    static let networkStyleDigest = "sha256-p4NxAoJBhIIN+hmNHrzRCf9tD/miZyoHS5obTRR9BMY="

    /// Makes the page.
    ///
    /// - Parameters:
    ///   - own: The way from the page to `/_tileproxy/`; relative, so that it works below any path of a server in front.
    ///   - root: The way to the proxy's root.
    init(leaflet: Leaflet, own: String, root: String) {
        let resources: String
        var (scripts, styles, images) = ("'self'", "'self'", "'self' data:")
        switch leaflet {
        case .own:
            resources = """
                <link rel="stylesheet" href="\(own)leaflet/leaflet.css">
                <script src="\(own)leaflet/leaflet.js"></script>
                """
        case .network:
            let base = Self.networkBase
            resources = """
                <link rel="stylesheet" href="\(base)leaflet.css" integrity="\(Self.networkStyleDigest)" crossorigin>
                <script src="\(base)leaflet.js" integrity="\(Self.networkScriptDigest)" crossorigin></script>
                """
            scripts = base + "leaflet.js"
            styles = base + "leaflet.css"
            images += " " + base + "images/"
        }
        let text = Self.document
            .replacing("{{own}}", with: own).replacing("{{root}}", with: root)
            .replacing("{{leaflet}}", with: resources)
            .replacing("{{style}}", with: Self.style)
            .replacing("{{scripts}}", with: Self.scripts.map { "<script>\($0)</script>" }.joined(separator: "\n"))
        html = ByteBuffer(string: text)
        let digests = Self.scripts.map { "'\(Self.digest($0))'" }.joined(separator: " ")
        policy =
            "default-src 'none'; script-src \(digests) \(scripts); "
            + "style-src '\(Self.digest(Self.style))' \(styles); img-src \(images); connect-src 'self'; "
            + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        tag = "\"" + Array(text.utf8).withUnsafeBytes { BlobDigest(hashing: $0) }.description.prefix(32) + "\""
    }

    /// The digest of an inline script or style, as a policy names it.
    static func digest(_ text: String) -> String {
        let hex = Array(Array(text.utf8).withUnsafeBytes { BlobDigest(hashing: $0) }.description.utf8)
        let bytes = stride(from: 0, to: hex.count - 1, by: 2).map { at in
            (hex[at].hexDigit ?? 0) << 4 | (hex[at + 1].hexDigit ?? 0)
        }
        return "sha256-" + Data(bytes).base64EncodedString()
    }

    private static let document = #"""
        <!DOCTYPE html>
        <html lang="en" data-own="{{own}}" data-root="{{root}}">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <title>tileproxy</title>
        <link rel="icon" href="data:,">
        {{leaflet}}
        <style>{{style}}</style>
        </head>
        <body>
        <header>
          <h1>tileproxy <small>map tiles from the cache</small></h1>
          <div id="switch" class="switch" role="radiogroup" aria-label="Source"></div>
          <label class="toggle"><input type="checkbox" id="shade"> Cache state</label>
          <span class="spacer"></span>
          <span id="live" class="live off">…</span>
          <button id="theme" class="icon" type="button" title="Light or dark" aria-label="Light or dark">◐</button>
        </header>
        <div id="place">
          <div id="map" role="region" aria-label="Map" aria-describedby="map-keys"></div>
          <div id="aim" aria-hidden="true"></div>
          <p id="map-keys" class="unseen">Arrow keys move the map, plus and minus zoom. While the cache state or a source
            of vector tiles is shown, Enter describes what is in the middle and Escape closes the description.</p>
          <p id="said" class="unseen" role="status"></p>
          <div id="legend" hidden>
            <span class="key is-fresh">fresh</span><span class="key is-stale">stale</span>
            <span class="key is-negative">no such tile</span><span class="key is-missing">not cached</span>
            <span id="legend-file" class="key is-local" hidden>a file</span>
          </div>
          <details id="layers" hidden open><summary>Layers</summary>
            <fieldset><legend class="unseen">Layers that are drawn</legend>
              <p><button id="layers-all" type="button">All</button> <button id="layers-none" type="button">None</button></p>
              <div id="layer-list"></div><p id="layer-note"></p></fieldset></details>
          <div id="note" hidden></div>
        </div>
        <main aria-label="Figures">
          <section class="card"><h2>Hit ratio</h2><strong id="hit-ratio">–</strong><p id="hit-note">&nbsp;</p>
            <svg id="hit-spark" class="spark" viewBox="0 0 100 28" preserveAspectRatio="none"
              aria-hidden="true"><path/><path/></svg></section>
          <section class="card"><h2>Requests</h2><strong id="requests">–</strong><p id="request-note">&nbsp;</p>
            <svg id="request-spark" class="spark" viewBox="0 0 100 28" preserveAspectRatio="none"
              aria-hidden="true"><path/><path/></svg></section>
          <section class="card wide"><h2>Disk</h2><strong id="disk">–</strong>
            <div id="disk-bar" class="bar"><span></span></div><p id="disk-note">&nbsp;</p></section>
          <section class="card"><h2>Saved by sharing</h2><strong id="dedupe">–</strong>
            <p id="dedupe-note">&nbsp;</p></section>
          <section class="card"><h2>Saved by 304</h2><strong id="saved">–</strong>
            <p id="saved-note">&nbsp;</p></section>
          <section class="card"><h2>Origin latency</h2><strong id="latency">–</strong>
            <p id="latency-note">&nbsp;</p></section>
          <section class="card"><h2>Evicted blobs</h2><strong id="evicted">–</strong>
            <p id="evicted-note">&nbsp;</p></section>
          <section id="shared" class="card wide" hidden><h2>Shared bucket</h2>
            <div class="keys"><span class="key is-fresh">hit</span><span class="key is-negative">miss</span>
              <span class="key is-missing">error</span></div></section>
          <section class="card wide"><h2>Sources</h2>
            <div class="keys"><span class="key is-fresh">hit</span><span class="key is-stale">stale</span>
              <span class="key is-again">confirmed by 304</span><span class="key is-negative">from origin</span>
              <span class="key is-missing">error</span></div>
            <div id="sources"></div></section>
          <footer><span id="about"></span> · <a href="{{own}}stats.json">JSON</a> ·
            <a href="{{own}}metrics">Prometheus</a></footer>
        </main>
        {{scripts}}
        </body>
        </html>
        """#
}
