package import TileStore

/// `set.json`: what a set is, and where its list begins.
package struct SetDocument: Equatable, Sendable {
    /// A list that can be had as a delta from a former root.
    package struct Delta: Hashable, Sendable {
        package let from: BlobDigest
        package let digest: BlobDigest
        package let length: Int

        package init(from: BlobDigest, digest: BlobDigest, length: Int) {
            self.from = from
            self.digest = digest
            self.length = length
        }
    }

    /// A former root that stays reachable.
    package struct Kept: Hashable, Sendable {
        package let root: BlobDigest
        package let length: Int
        /// When another one took its place.
        package let replaced: Timestamp

        package init(root: BlobDigest, length: Int, replaced: Timestamp) {
            self.root = root
            self.length = length
            self.replaced = replaced
        }
    }

    /// The source's name where the set was made.
    package var name: String
    /// When it was made.
    package var time: Timestamp
    /// The root, and the length of its canonical JSON.
    package var root: BlobDigest
    package var rootLength: Int
    /// Tiles, different blobs, and the bytes of these.
    package var tiles: Int
    package var blobs: Int
    package var bytes: Int
    /// For how many seconds after ``time`` tiles are fresh; `nil`: until the next pull.
    package var lifetime: Int?
    /// What is known of the source: a TileJSON-like object.
    package var metadata: [String: JSONValue]
    /// The newest first.
    package var deltas: [Delta]
    /// The newest first; without the present one.
    package var kept: [Kept]

    /// The former roots, each once and without the present one: others than this publisher may name one twice.
    package var former: [Kept] {
        var seen: Set = [root]
        return kept.filter { seen.insert($0.root).inserted }
    }

    /// The name of the file.
    package static let path = "set.json"
    private static let format = "tile-set"
    private static let version: Int64 = 1

    package init(
        name: String, time: Timestamp, root: BlobDigest, rootLength: Int, tiles: Int, blobs: Int, bytes: Int,
        lifetime: Int? = nil, metadata: [String: JSONValue] = [:], deltas: [Delta] = [], kept: [Kept] = []
    ) {
        self.name = name
        self.time = time
        self.root = root
        self.rootLength = rootLength
        self.tiles = tiles
        self.blobs = blobs
        self.bytes = bytes
        self.lifetime = lifetime
        self.metadata = metadata
        self.deltas = deltas
        self.kept = kept
    }

    /// Its JSON.
    package var encoded: [UInt8] {
        var json = CanonicalJSON()
        json.value(
            .object([
                "format": .string(Self.format), "version": .integer(Self.version), "name": .string(name),
                "time": .integer(time.seconds), "root": .string(root.description),
                "rootLength": .integer(Int64(rootLength)), "tiles": .integer(Int64(tiles)),
                "blobs": .integer(Int64(blobs)), "bytes": .integer(Int64(bytes)),
                "lifetime": lifetime.map { .integer(Int64($0)) } ?? .null, "metadata": .object(metadata),
                "deltas": .array(
                    deltas.map {
                        .array([
                            .string($0.from.description), .string($0.digest.description), .integer(Int64($0.length)),
                        ])
                    }),
                "kept": .array(
                    kept.map {
                        .array([
                            .string($0.root.description), .integer(Int64($0.length)), .integer($0.replaced.seconds),
                        ])
                    }),
            ]))
        json.raw("\n")
        return json.bytes
    }

    /// Reads `set.json`.
    ///
    /// - Parameter place: Where it was read, for the message.
    /// - Throws: ``SetError``.
    package init(_ bytes: [UInt8], at place: String) throws {
        func refuse(_ why: String) -> SetError { SetError(.damaged, "\(place) is no sound set: \(why)") }
        guard bytes.count <= SetBounds.document, let object = bytes.json?.object,
            object["format"]?.string == Self.format
        else { throw SetError(.notASet, "\(place) is not the document of a published set") }
        guard let version = object["version"]?.integer, version == Self.version else {
            throw SetError(.notASet, "\(place) has a newer format; use a newer tilegc")
        }
        func count(_ name: String, _ most: Int) throws -> Int {
            guard let value = object[name]?.integer, value >= 0, value <= Int64(most) else {
                throw refuse("'\(name)' is missing or out of range")
            }
            return Int(value)
        }
        func digest(_ value: JSONValue?) throws -> BlobDigest {
            guard let digest = value?.string.flatMap({ BlobDigest($0) }) else {
                throw refuse("it has a name that is no SHA-256")
            }
            return digest
        }
        func rows(_ name: String, _ most: Int) throws -> [[JSONValue]] {
            guard let list = object[name]?.array, list.count <= most else {
                throw refuse("'\(name)' is missing or too long")
            }
            return try list.map {
                guard let parts = $0.array, parts.count == 3 else { throw refuse("'\(name)' has a row that is none") }
                return parts
            }
        }
        func length(_ value: JSONValue, _ most: Int) throws -> Int {
            guard let length = value.integer, (1...Int64(most)).contains(length) else {
                throw refuse("it has a length that is out of range")
            }
            return Int(length)
        }
        func time(_ value: JSONValue?) throws -> Timestamp {
            guard let seconds = value?.integer, (0...Timestamp.distantFuture.seconds).contains(seconds) else {
                throw refuse("it has a time that is out of range")
            }
            return Timestamp(seconds: seconds)
        }
        guard let name = object["name"]?.string, name.utf8.count <= 64 else { throw refuse("it has no name") }
        let lifetime: Int? = object["lifetime"] == .null ? nil : try count("lifetime", Int(UInt32.max))
        guard let metadata = object["metadata"]?.object else { throw refuse("it has no metadata") }
        self.init(
            name: name, time: try time(object["time"]), root: try digest(object["root"]),
            rootLength: try length(object["rootLength"] ?? .null, SetBounds.root),
            tiles: try count("tiles", SetBounds.chunks * SetBounds.tilesOfChunk),
            blobs: try count("blobs", SetBounds.chunks * SetBounds.tilesOfChunk), bytes: try count("bytes", 1 << 60),
            lifetime: lifetime, metadata: metadata,
            deltas: try rows("deltas", SetBounds.deltas).map {
                Delta(from: try digest($0[0]), digest: try digest($0[1]), length: try length($0[2], SetBounds.delta))
            },
            kept: try rows("kept", SetBounds.kept).map {
                Kept(root: try digest($0[0]), length: try length($0[1], SetBounds.root), replaced: try time($0[2]))
            })
    }
}

/// Where a set's objects lie in its folder.
package enum SetPaths {
    /// Of a tile's bytes: `objects/ab/abcd…`.
    package static func blob(_ digest: BlobDigest) -> String { digest.path }
    /// Of a chunk, a root or a delta: the same with `.gz`.
    package static func list(_ digest: BlobDigest) -> String { digest.path + ".gz" }
}
