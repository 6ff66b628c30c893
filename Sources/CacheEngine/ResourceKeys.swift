package import HTTPCaching
package import HTTPTypes
package import TileStore

/// How URLs and request fields become keys of the store.
///
/// The path is written as it is; the query, and the request fields that `Vary` names, only as salted fingerprints. A path
/// that the store would refuse (too long, odd characters) has no key: it is passed through and never stored.
package struct ResourceKeys: Sendable {
    package let store: TileStore
    package let name: SourceName

    package init(store: TileStore, name: SourceName) {
        self.store = store
        self.name = name
    }

    /// The key of a URL below the route's prefix.
    package func primary(rest: String, query: String?) -> TileKey? {
        let fingerprint = query.map { store.fingerprint(of: "query\n" + $0) }
        // What the store refuses has no key. A bare prefix and the same with a slash are two resources, and no key has an empty path.
        guard let address = try? ResourceAddress(path: rest.isEmpty ? "~" : rest, query: fingerprint) else {
            return nil
        }
        return TileKey(source: name, resource: address)
    }

    /// The key of the variant for a request, under a marker; `nil` if the marker's fields cannot be told apart.
    package func variant(of primary: TileKey, _ names: [HTTPField.Name], epoch: String, for request: HTTPFields)
        -> TileKey?
    {
        // As above: what the store refuses has no key.
        guard case .resource(let resource) = primary.address,
            let selection = Vary.fields(names).selectionText(for: request),
            let address = try? ResourceAddress(
                path: resource.path, query: resource.query,
                variant: store.fingerprint(of: "vary\n" + epoch + "\n" + selection))
        else { return nil }
        return TileKey(source: name, resource: address)
    }
}

/// What stands under a URL's own key when its responses vary: which request fields lead to the variants.
///
/// It has no body. Its epoch is part of every variant's fingerprint, so that removing the marker removes them all, though
/// nobody knows their keys.
package struct VaryMarker: Hashable, Sendable {
    /// The sets of fields that responses named, the latest first.
    package var sets: [[HTTPField.Name]]
    /// A random text of this marker.
    package var epoch: String

    /// A name that no field can have.
    private static let setName = ":vary"
    private static let epochName = ":epoch"
    private static let limit = 4

    package init(sets: [[HTTPField.Name]], epoch: String) {
        self.sets = sets
        self.epoch = epoch
    }

    /// Reads a marker; `nil` if the entry is a response.
    package init?(_ metadata: TileMetadata) {
        var (sets, epoch): ([[HTTPField.Name]], String?) = ([], nil)
        for header in metadata.response.headers {
            switch header.name {
            case Self.epochName: epoch = header.value
            case Self.setName:
                let names = header.value.split(separator: ",").compactMap { HTTPField.Name(String($0)) }
                if !names.isEmpty { sets.append(names) }
            default: return nil
            }
        }
        guard let epoch, !sets.isEmpty else { return nil }
        self.init(sets: sets, epoch: epoch)
    }

    /// The marker with a set in front of its others.
    package func adding(_ names: [HTTPField.Name]) -> VaryMarker {
        VaryMarker(sets: Array(([names] + sets.filter { $0 != names }).prefix(Self.limit)), epoch: epoch)
    }

    /// The entry that says it.
    package func metadata(at now: HTTPDate) -> TileMetadata {
        let headers =
            sets.map { set in
                ResponseFields.Header(name: Self.setName, value: set.map(\.canonicalName).joined(separator: ","))
            } + [ResponseFields.Header(name: Self.epochName, value: epoch)]
        return TileMetadata(
            response: ResponseFields(headers: headers), storedAt: Timestamp(seconds: now.seconds),
            expires: Timestamp(seconds: now.adding(seconds: 31_536_000).seconds))
    }
}
