package import ObjectStorage
package import SharedTier

/// The bucket that the proxies of a fleet share, as the operator describes it.
package struct SharedConfiguration: Hashable, Sendable {
    /// `http(s)://HOST/BUCKET[/PREFIX]`.
    package var url: String
    /// The bucket's region; most servers that are not Amazon's take any.
    package var region = "us-east-1"
    /// The name of the access key, and its secret.
    package var accessKey = ""
    package var secretKey = ""
    /// Where the key is one that is valid for some time only.
    package var sessionToken: String?
    /// Whether the bucket's name is part of the host's.
    package var isVirtualHost = false
    /// How long a look may take.
    package var timeout = Duration.milliseconds(500)
    /// Whether tiles are written.
    package var writes = true

    /// The bucket of a URL, with keys from the environment.
    ///
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` and `AWS_REGION`, as other tools read them.
    package init(url: String, places: SecretPlaces = .system) {
        self.url = url
        region = places.environment("AWS_REGION") ?? region
        accessKey = places.environment("AWS_ACCESS_KEY_ID") ?? ""
        secretKey = places.environment("AWS_SECRET_ACCESS_KEY") ?? ""
        sessionToken = places.environment("AWS_SESSION_TOKEN").flatMap { $0.isEmpty ? nil : $0 }
    }

    /// What the client needs.
    package struct Parts: Sendable {
        package var address: BucketAddress
        package var credentials: S3Credentials
    }

    /// Looks for mistakes.
    ///
    /// - Throws: What the closure makes of a message, which shows no secret.
    package func parts(or fail: (String) -> ConfigError) throws(ConfigError) -> Parts {
        guard !accessKey.isEmpty, !secretKey.isEmpty else {
            throw fail(
                "it needs an access key and its secret: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or accessKey and secretKey"
            )
        }
        do throws(S3Error) {
            let address = try BucketAddress(url, region: region, isVirtualHost: isVirtualHost)
            let credentials = try S3Credentials(accessKey: accessKey, secretKey: secretKey, sessionToken: sessionToken)
            return Parts(address: address, credentials: credentials)
        } catch { throw fail(error.message) }
    }
}
