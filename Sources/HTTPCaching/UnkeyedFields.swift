package import HTTPTypes

extension HTTPField.Name {
    /// Whether origins may take this field of a request for the word of a trusted server in front of them.
    ///
    /// Such fields say who the client is, how it reached the front, or which URL, method or host is really meant. No cache
    /// key holds them and few responses name them in `Vary`. An origin that obeys one of a client's making would let that
    /// client choose what is stored for all others. So none of them goes on to an origin.
    ///
    /// Every name with an underscore is among them: CGI, WSGI and their like read `X_Forwarded_Host` and
    /// `X-Forwarded-Host` as the same variable.
    package var isForTrustedFronts: Bool {
        let name = canonicalName
        if name.utf8.contains(UInt8(ascii: "_")) { return true }
        // Most fields of a request begin with another letter than these.
        switch name.utf8.first {
        case UInt8(ascii: "x"):
            return xPrefixes.contains(where: name.hasPrefix) || xNames.contains(name)
        case UInt8(ascii: "r"): return name.hasPrefix("remote-")
        case UInt8(ascii: "s"): return name.hasPrefix("ssl-client-")
        case UInt8(ascii: "c"), UInt8(ascii: "f"), UInt8(ascii: "p"), UInt8(ascii: "t"): return names.contains(name)
        default: return false
        }
    }
}

private let xPrefixes = [
    "x-forwarded", "x-original-", "x-rewrite-", "x-remote-", "x-auth-request-", "x-ssl-",
    "x-client-cert", "x-client-dn", "x-client-ip", "x-client-verify", "x-http-host", "x-http-method",
]

private let xNames: Set<String> = [
    "x-host", "x-method-override", "x-url-scheme", "x-scheme", "x-https", "x-arr-ssl", "x-real-ip",
    "x-cluster-client-ip",
    "x-proxyuser-ip", "x-script-name",
]

/// `Proxy` becomes `HTTP_PROXY`, by which programs behind CGI choose a proxy for requests of their own.
private let names: Set<String> = [
    "cf-connecting-ip", "cf-visitor", "client-ip", "fastly-client-ip", "forwarded", "front-end-https", "proxy",
    "true-client-ip",
]
