package import HTTPTypes

/// What a response's `Cache-Control`, or a targeted field in its place, says.
///
/// Real servers send anything; this is how it is read:
/// - Names are case-insensitive. Empty members, blanks and unknown directives are passed over.
/// - A number may be quoted. One that is negative, fractional or no number makes the lifetime 0: a response whose
///   freshness is invalid counts as stale (RFC 9111 §4.2.1). One above 2³¹ is 2³¹ (§1.2.2).
/// - Of several values for a directive the first counts (§4.2.1). Of several forms the stricter counts: `no-cache` wins
///   over `no-cache="field"` (§4.2.1, "most restrictive").
/// - A field name list may be a bare token (§5.2.2.4). One with nothing valid in it counts as no list at all.
///
/// https://www.rfc-editor.org/rfc/rfc9111.html#section-5.2.2
package struct CacheControl: Hashable, Sendable {
    /// `no-cache` and `private`: absent, for the whole response, or for some of its fields.
    package enum Scope: Hashable, Sendable {
        /// The directive is absent.
        case none
        /// For these fields of the response only.
        case fields([HTTPField.Name])
        /// For the response as a whole.
        case response
    }

    /// An extension directive: name in lower case, and its value without quotes.
    package struct Extension: Hashable, Sendable {
        /// The directive's name in lower case.
        package var name: String
        /// Its argument, if it has one.
        package var value: String?

        /// Makes an extension directive.
        package init(name: String, value: String? = nil) {
            self.name = name
            self.value = value
        }
    }

    /// `max-age` in seconds (§5.2.2.1).
    package var maxAge: Int?
    /// `s-maxage` in seconds (§5.2.2.10).
    package var sharedMaxAge: Int?
    /// `stale-while-revalidate` in seconds (RFC 5861 §3); `nil` if absent, 0 if invalid.
    package var staleWhileRevalidate: Int?
    /// `stale-if-error` in seconds (RFC 5861 §4); `nil` if absent, 0 if invalid.
    package var staleIfError: Int?
    /// `no-cache` (§5.2.2.4).
    package var noCache = Scope.none
    /// `private` (§5.2.2.7).
    package var `private` = Scope.none
    /// `no-store` (§5.2.2.5).
    package var noStore = false
    /// `public` (§5.2.2.9).
    package var `public` = false
    /// `must-revalidate` (§5.2.2.2).
    package var mustRevalidate = false
    /// `proxy-revalidate` (§5.2.2.8).
    package var proxyRevalidate = false
    /// `must-understand` (§5.2.2.3).
    package var mustUnderstand = false
    /// `no-transform` (§5.2.2.6).
    package var noTransform = false
    /// `immutable` (RFC 8246).
    package var immutable = false
    /// Directives that have no property here, at most 32 of them.
    package var extensions: [Extension] = []

    /// An `s-maxage` without a number makes a response stale, but permits nothing that a valid one permits (§3.5).
    var invalidSharedMaxAge = false

    /// Says nothing.
    package init() {}

    /// Reads all `Cache-Control` lines of a response; `nil` if there is none.
    package init?(_ fields: HTTPFields) {
        guard fields.contains(.cacheControl) else { return nil }
        for field in fields where field.name == .cacheControl {
            for member in listMembers(Array(field.value.utf8)) { add(CacheDirective(member)) }
        }
    }

    /// Reads one line, as if it were the only one.
    package init(_ line: some StringProtocol) {
        for member in listMembers(Array(line.utf8)) { add(CacheDirective(member)) }
    }

    private mutating func add(_ directive: CacheDirective) {
        switch directive.name {
        case "max-age": maxAge = maxAge ?? directive.seconds ?? 0
        case "s-maxage":
            if directive.seconds == nil { invalidSharedMaxAge = true }
            sharedMaxAge = sharedMaxAge ?? directive.seconds ?? 0
        case "stale-while-revalidate": staleWhileRevalidate = staleWhileRevalidate ?? directive.seconds ?? 0
        case "stale-if-error": staleIfError = staleIfError ?? directive.seconds ?? 0
        case "no-cache": noCache.narrow(to: directive)
        case "private": self.private.narrow(to: directive)
        case "no-store": noStore = true
        case "public": self.public = true
        case "must-revalidate": mustRevalidate = true
        case "proxy-revalidate": proxyRevalidate = true
        case "must-understand": mustUnderstand = true
        case "no-transform": noTransform = true
        case "immutable": immutable = true
        case "": break
        default:
            guard extensions.count < 32 else { break }
            let value = directive.value.map { String(decoding: unquoted($0), as: UTF8.self) }
            extensions.append(Extension(name: directive.name, value: value))
        }
    }
}

extension CacheControl.Scope {
    /// Makes the scope at least as wide as one more directive says.
    fileprivate mutating func narrow(to directive: CacheDirective) {
        guard self != .response else { return }
        guard let value = directive.value else {
            self = .response
            return
        }
        var names: [HTTPField.Name] = []
        if case .fields(let known) = self { names = known }
        for part in unquoted(value).split(separator: UInt8(ascii: ",")) {
            guard names.count < 64, let name = HTTPField.Name(String(decoding: part.trimmed, as: UTF8.self)) else {
                // A list that cannot be read in full must not be taken for a shorter one.
                self = .response
                return
            }
            if !names.contains(name) { names.append(name) }
        }
        self = names.isEmpty ? .response : .fields(names)
    }

    /// The fields that the directive names; none if it is absent or for the whole response.
    var fieldNames: [HTTPField.Name] {
        if case .fields(let names) = self { names } else { [] }
    }
}

/// One member of a `Cache-Control` list.
struct CacheDirective {
    /// In lower case; empty if the member does not begin with a token.
    let name: String
    /// With its quotes, if it has them; `nil` without `=`.
    let value: ArraySlice<UInt8>?

    init(_ member: ArraySlice<UInt8>) {
        let end = member.firstIndex { !$0.isTokenCharacter } ?? member.endIndex
        let rest = member[end...]
        // Blanks around `=` are an error of the sender. The directive is recognised all the same, so that a malformed
        // `no-store =""` is not lost; a number with a blank before it is invalid and means 0.
        guard let mark = rest.trimmed.first else {
            name = member[..<end].lowercasedText
            value = nil
            return
        }
        name = member[..<end].lowercasedText
        value = mark == UInt8(ascii: "=") && rest.first == mark ? rest.dropFirst() : rest
    }

    /// The value as a number of seconds, quoted or not; `nil` if it is none.
    var seconds: Int? { value.flatMap { unquoted($0)[...].deltaSeconds } }
}
