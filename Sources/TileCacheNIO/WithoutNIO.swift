#if !NIO
/// A transport over async-http-client, which only a package that enables the trait `NIO` resolves and builds.
///
/// ```swift
/// .package(url: "…/swift-tile-cache", from: "…", traits: ["NIO"])
/// ```
@available(*, unavailable, message: "enable the trait NIO of swift-tile-cache in Package.swift: traits: [\"NIO\"]")
public final class AsyncHTTPClientTransport: Sendable {}
#endif
