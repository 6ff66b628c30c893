import HTTPTypes

extension HTTPField.Name {
    /// The fields that go to another host too when a request is redirected there: nothing that a source, an app or a hook may
    /// have put a secret into.
    static let harmless: Set<HTTPField.Name> = [
        .userAgent, .accept, .acceptEncoding, .acceptLanguage, .cacheControl, .range, .ifRange, .ifNoneMatch,
        .ifModifiedSince,
    ]
}
