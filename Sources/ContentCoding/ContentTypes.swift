#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What tiles are whose stored type says nothing: by the first bytes of each content, which are looked at once.
///
/// A million tiles share few contents, and mostly the type says what they are: then nothing is read.
package struct ContentTypes<Name: Hashable> {
    private var known: [Name: String?] = [:]

    /// So many bytes are enough to look at.
    package static var bytes: Int { 1024 }

    package init() {}

    /// The media type of a tile.
    ///
    /// - Parameters:
    ///   - stored: The type that it was stored with.
    ///   - coding: Its content coding; what is in another one than gzip cannot be looked at.
    ///   - name: What names its content.
    ///   - start: Its first bytes; `nil` if they cannot be had.
    package mutating func mediaType(
        stored: String?, coding: String?, of name: Name, _ start: () throws -> Data?
    ) rethrows -> String? {
        if let stored, TileContent.isFormat(mediaType: stored) { return stored }
        guard ["", "identity", "gzip", "x-gzip"].contains(coding?.lowercased() ?? "") else { return stored }
        if let type = known[name] { return type ?? stored }
        let type = try start().flatMap { TileContent(of: $0, format: nil).mediaType }
        known[name] = .some(type)
        return type ?? stored
    }
}
