extension ResourceAddress {
    /// `path[?query][#variant]`.
    var text: String { path + (query.map { "?\($0)" } ?? "") + (variant.map { "#\($0)" } ?? "") }

    init(text: String) throws {
        guard case .resource(let resource) = try TileKey("x:" + text).address else {
            throw StoreError(.invalidKey, "\(quoted(text)) is no resource")
        }
        self = resource
    }

    static let unnamed = ResourceAddress(uncheckedPath: "?")

    private init(uncheckedPath: String) {
        path = uncheckedPath
        query = nil
        variant = nil
    }
}
