@testable import TileStore

extension FuzzTarget {
    /// What lies on the disk.
    static let stored = [
        FuzzTarget(name: "manifest-line") { bytes in
            let reader = LineReader()
            try bytes.withUnsafeBytes { body in
                guard !body.isEmpty else { return }
                var put = PutLine()
                let isPut = reader.readPut(body, &put)
                let (blob, size, storedAt, expires) = (put.blob, put.size, put.storedAt, put.expires)
                guard isPut else {
                    _ = reader.readAny(body)
                    return
                }
                // What the fast reader takes, the general one takes too, and in the same sense.
                guard case .put(let other) = reader.readAny(body) else {
                    // Escapes that JSON does not have, and bytes that are no UTF-8, are told by the general reader alone.
                    return
                }
                try promise(
                    other.blob == blob && other.size == size && other.storedAt == storedAt && other.expires == expires,
                    "two readers of one line differ")
            }
        },
        FuzzTarget(name: "key") { bytes in
            let text = String(decoding: bytes, as: UTF8.self)
            guard let key = try? TileKey(text) else { return }
            let again = try? TileKey(key.description)
            try promise(again == key, "\(key) is another key")
            try promise(key.description.utf8.count <= 4096, "a key of \(key.description.utf8.count) bytes")
        },
    ]
}
