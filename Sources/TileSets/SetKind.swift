/// What a tile's bytes are: a media type and a content coding, each from a list.
package struct SetKind: Hashable, Sendable {
    /// The media types that a set may name.
    package static let types = [
        "application/geo+json", "application/json", "application/octet-stream", "application/vnd.mapbox-vector-tile",
        "application/x-protobuf", "image/avif", "image/gif", "image/jpeg", "image/png", "image/svg+xml", "image/webp",
        "text/plain",
    ]
    /// The content codings that a set may name.
    package static let codings = ["br", "deflate", "gzip", "zstd"]

    // Places in the lists, from 1 on; 0 for none.
    private let typeNumber: UInt8
    private let codingNumber: UInt8

    /// The media type, if it is known.
    package var type: String? { typeNumber == 0 ? nil : Self.types[Int(typeNumber) - 1] }
    /// The content coding, if the bytes have one.
    package var coding: String? { codingNumber == 0 ? nil : Self.codings[Int(codingNumber) - 1] }

    /// Checks and takes a kind; `nil` if one of the names is in no list.
    package init?(type: String?, coding: String?) {
        guard let type = Self.number(of: type, in: Self.types), let coding = Self.number(of: coding, in: Self.codings)
        else { return nil }
        (typeNumber, codingNumber) = (type, coding)
    }

    private static func number(of name: String?, in list: [String]) -> UInt8? {
        guard let name else { return 0 }
        return list.firstIndex(of: name).map { UInt8($0 + 1) }
    }
}
