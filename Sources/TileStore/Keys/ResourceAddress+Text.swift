extension ResourceAddress {
    /// `path[?query][#variant]`.
    var text: String { path + (query.map { "?\($0)" } ?? "") + (variant.map { "#\($0)" } ?? "") }

    init(text: String) throws {
        guard case .resource(let resource) = try TileKey("x:" + text).address else {
            throw StoreError(.invalidKey, "\(quoted(text)) is no resource")
        }
        self = resource
    }

    /// The text without what names a variant.
    static func textForAllVariants(_ text: String) -> String {
        guard let mark = text.utf8.lastIndex(of: UInt8(ascii: "#")) else { return text }
        return String(text[..<mark])
    }

    static let unnamed = ResourceAddress(uncheckedPath: "?")

    /// - Parameter uncheckedPath: A path that is known to be valid, or one that no other address can have.
    package init(uncheckedPath: String) {
        path = uncheckedPath
        query = nil
        variant = nil
    }
}
