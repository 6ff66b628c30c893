import CacheEngine
import HTTPTypes
import HTTPWire
import NIOCore
import TileStore

/// For which requests an answer that was chosen by `Vary` is made ready: those whose selecting fields are the same,
/// byte by byte.
///
/// Stricter than ``Vary``, which also compares by meaning (RFC 9111 §4.1); a request that only means the same goes the
/// long way.
final class ReadySelection {
    /// The key of the URL's marker.
    private let marker: KnownKey
    /// The marker's fields: while they are the same, the variant has the same key.
    private let markerFields: ResponseFields
    /// The names of the fields in lower case, and the lines of each.
    private let fields: [(name: [UInt8], lines: [[UInt8]])]

    /// Remembers what a request said.
    ///
    /// `nil` where a later response might be the better match, or where `Connection` takes fields away.
    init?(_ choice: VariantChoice, _ request: HeadFields, _ store: TileStore) {
        guard choice.isOnlyChoice, !request.mayHideFields, let marker = store.known(choice.marker.key) else {
            return nil
        }
        self.marker = marker
        markerFields = choice.marker.metadata.response
        fields = choice.names.map { name in
            let name = Array(name.canonicalName.utf8)
            return (name, request.lines(of: name))
        }
    }

    /// Whether a request says the same.
    func matches(_ request: HeadFields) -> Bool {
        !request.mayHideFields && fields.allSatisfy { request.has($0.lines, of: $0.name) }
    }

    /// Whether the URL's marker still leads to the variant.
    ///
    /// Removing the marker removes all variants.
    @inline(__always)
    func holds(in store: TileStore) -> Bool { (try? store.has(markerFields, under: marker)) ?? false }

    /// About how much memory it takes.
    var cost: Int {
        fields.reduce(160) { sum, field in
            sum + 96 + field.name.count + field.lines.reduce(0) { $0 + $1.count + 48 }
        }
    }

    /// Whether another selection is for the same requests.
    func equals(_ other: ReadySelection) -> Bool {
        fields.elementsEqual(other.fields) { $0.name == $1.name && $0.lines == $1.lines }
    }
}

extension HeadFields {
    /// Whether `Connection` names anything but the connection's own fate.
    fileprivate var mayHideFields: Bool {
        guard contains(.connection) else { return false }
        let isHarmless =
            withValue(of: .connection) { $0.equals(lowercase: "keep-alive") || $0.equals(lowercase: "close") } ?? false
        return !isHarmless || count(of: .connection) > 1
    }

    /// The values of all lines of a field; its name is in lower case.
    fileprivate func lines(of name: [UInt8]) -> [[UInt8]] {
        var lines: [[UInt8]] = []
        bytes.withUnsafeReadableBytes { all in
            for span in spans where isNamed(name, span, all) { lines.append(Array(value(span, all))) }
        }
        return lines
    }

    /// Whether a field has these lines and no others.
    fileprivate func has(_ lines: [[UInt8]], of name: [UInt8]) -> Bool {
        bytes.withUnsafeReadableBytes { all in
            var index = 0
            for span in spans where isNamed(name, span, all) {
                guard index < lines.count, value(span, all).elementsEqual(lines[index]) else { return false }
                index += 1
            }
            return index == lines.count
        }
    }

    private func isNamed(_ name: [UInt8], _ span: Span, _ all: UnsafeRawBufferPointer) -> Bool {
        guard Int(span.nameLength) == name.count else { return false }
        let start = Int(span.nameStart)
        for i in 0..<name.count where all[start + i].lowercased != name[i] { return false }
        return true
    }
}
