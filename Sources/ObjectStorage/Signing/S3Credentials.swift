/// Who asks: an access key with its secret, and a token if they are valid for some time only.
package struct S3Credentials: Sendable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The access key's name, which every request shows.
    package let accessKey: String
    let secretKey: String
    let sessionToken: String?

    /// - Throws: Why they can sign nothing; the text shows no secret.
    package init(accessKey: String, secretKey: String, sessionToken: String? = nil) throws(S3Error) {
        guard Self.isPlain(accessKey), !accessKey.utf8.contains(0x2C), (1...256).contains(accessKey.utf8.count) else {
            throw S3Error(.invalid, "the access key is not 1 to 256 printable characters without blanks and commas")
        }
        guard Self.isPlain(secretKey), (1...1024).contains(secretKey.utf8.count) else {
            throw S3Error(.invalid, "the secret key is not 1 to 1,024 printable characters without blanks")
        }
        if let sessionToken {
            guard Self.isPlain(sessionToken), (1...8192).contains(sessionToken.utf8.count) else {
                throw S3Error(.invalid, "the session token is not 1 to 8,192 printable characters without blanks")
            }
        }
        (self.accessKey, self.secretKey, self.sessionToken) = (accessKey, secretKey, sessionToken)
    }

    private static func isPlain(_ text: String) -> Bool { text.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } }

    // No print, log or dump shows what is secret.
    package var description: String { "access key \(accessKey)" }
    package var debugDescription: String { description }
    package var customMirror: Mirror { Mirror(self, children: ["accessKey": accessKey]) }
}
