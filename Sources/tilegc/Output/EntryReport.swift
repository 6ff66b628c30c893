import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// An entry as `ls` and `show` report it.
struct EntryReport {
    let entry: TileEntry
    let now: Timestamp

    /// The present time, as it decides about freshness.
    static var now: Timestamp { Timestamp(Date()) }

    private var metadata: TileMetadata { entry.metadata }
    private var isStale: Bool { metadata.isStale(at: now) }

    /// The fields of `ls --json`.
    var fields: [(String, JSON)] {
        [
            ("key", .string(entry.key.description)),
            ("blob", .optional(entry.blob)),
            ("size", .integer(entry.size)),
            ("status", .integer(metadata.response.status)),
            ("etag", .optional(metadata.etag)),
            ("lastModified", .optional(metadata.lastModified)),
            ("expires", .string(metadata.expires.description)),
            ("lastUsed", .string(entry.lastUsed.description)),
            ("stale", .bool(isStale)),
            ("pinned", .bool(entry.isPinned)),
        ]
    }

    /// The fields that `show --json` has on top.
    func details(references: Int) -> [(String, JSON)] {
        let response = metadata.response
        return [
            (
                "headers",
                .array(response.headers.map { .object([("name", .string($0.name)), ("value", .string($0.value))]) })
            ),
            ("references", .integer(references)),
            ("mediaType", .optional(response.mediaType)),
            ("contentEncoding", .optional(response.contentEncoding)),
            ("storedAt", .string(metadata.storedAt.description)),
            ("date", .optional(metadata.date)),
            ("initialAge", .integer(metadata.initialAge)),
            ("staleWhileRevalidate", .integer(response.staleWhileRevalidate)),
            ("staleIfError", .integer(response.staleIfError)),
            ("mustRevalidate", .bool(response.mustRevalidate)),
            ("noCache", .bool(response.noCache)),
        ]
    }

    /// One line of `ls`.
    ///
    /// The key comes last, so that everything before it lines up.
    var line: String {
        let blob = entry.blob.map { String($0.description.prefix(12)) } ?? "-"
        return [
            String(metadata.response.status),
            Figure.size(entry.size).right(9),
            (isStale ? "stale" : "fresh") + (entry.isPinned ? " pinned" : "       "),
            metadata.expires.description,
            blob.left(12),
            entry.key.description,
        ].joined(separator: "  ")
    }

    /// All of `show`, a field a line.
    func lines(references: Int) -> [String] {
        let response = metadata.response
        func yes(_ value: Bool) -> String { value ? "yes" : "no" }
        var rows: [(String, String)] = [
            ("Key", entry.key.description),
            ("Status", String(response.status)),
            ("Size", entry.size < 1000 ? "\(entry.size) B" : "\(Figure.size(entry.size)) (\(entry.size) B)"),
            ("Blob", entry.blob?.description ?? "none: a response without a body"),
        ]
        if entry.blob != nil {
            rows.append(("References", "\(Figure.count(references, "entry", "entries")) with these bytes"))
        }
        rows += [
            ("Media type", response.mediaType ?? "not known"),
            ("Encoding", response.contentEncoding ?? "identity"),
            ("ETag", metadata.etag ?? "none"),
            ("Last-Modified", metadata.lastModified?.description ?? "none"),
            ("Stored", metadata.storedAt.description),
            ("Date", metadata.date?.description ?? "none"),
            ("Initial age", "\(metadata.initialAge) s"),
            ("Expires", "\(metadata.expires) (\(isStale ? "stale" : "fresh"))"),
            ("Last used", entry.lastUsed.description),
            ("Pinned", yes(entry.isPinned)),
            (
                "Stale use",
                "\(response.staleWhileRevalidate) s while revalidating, \(response.staleIfError) s on error"
            ),
            ("Must revalidate", yes(response.mustRevalidate)),
            ("No cache", yes(response.noCache)),
        ]
        for header in response.headers { rows.append(("Header", "\(header.name): \(header.value)")) }
        return rows.map { "\($0.0.left(16))\($0.1.printable)" }
    }
}
