import HTTPCaching
import HTTPTypes

extension FuzzTarget {
    /// What fields say.
    static let rules = [
        FuzzTarget(name: "cache-control") { bytes in
            let text = String(decoding: bytes, as: UTF8.self)
            for said in [CacheControl(text), targeted(text)].compactMap({ $0 }) {
                let numbers = [said.maxAge, said.sharedMaxAge, said.staleWhileRevalidate, said.staleIfError]
                for number in numbers.compactMap({ $0 }) {
                    try promise((0...2_147_483_648).contains(number), "\(number) seconds")
                }
                try promise(said.extensions.count <= 32, "too many extensions")
            }
        },
        FuzzTarget(name: "fields") { bytes in
            let text = String(decoding: bytes, as: UTF8.self)
            let now = HTTPDate(seconds: 1_795_000_000)
            if let date = HTTPDate(parsing: text, now: now) {
                try promise(HTTPDate(parsing: date.description, now: now) == date, "\(date) is another date")
            }
            if let tag = EntityTag(text) { try promise(EntityTag(tag.text) == tag, "\(tag) is another tag") }
            if let range = ContentRange(text) {
                try promise(!range.bytes.isEmpty && range.bytes.upperBound <= range.length, "\(range)")
            }
            if let ranges = ByteRanges(text) {
                for range in ranges.resolved(length: 1000) {
                    try promise(!range.isEmpty && range.lowerBound >= 0 && range.upperBound <= 1000, "\(range)")
                }
            }
            if let reference = URIReference(text), let base = URIReference("http://a/b/c/d;p?q") {
                try promise(base.resolving(reference).scheme != nil, "a target without a scheme")
            }
            for name in ["vary", "cache-control", "expires", "age", "date", "pragma", "content-encoding"] {
                guard let name = HTTPField.Name(name) else { continue }
                var fields = HTTPFields()
                fields.append(HTTPField(name: name, value: text))
                let response = HTTPResponse(status: .ok, headerFields: fields)
                let policy = CachePolicy(kind: .shared)
                let freshness = policy.freshness(of: response, requestedAt: now, receivedAt: now)
                try promise(freshness.lifetime >= 0, "a lifetime of \(freshness.lifetime)")
                _ = Vary(fields).selectingFields(of: fields)
            }
        },
    ]

    private static func targeted(_ text: String) -> CacheControl? {
        guard let name = HTTPField.Name("CDN-Cache-Control") else { return nil }
        var fields = HTTPFields()
        fields.append(HTTPField(name: name, value: text))
        return CacheControl(targeted: name, in: fields)
    }
}
