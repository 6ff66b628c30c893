// swift-format-ignore-file

// What of Hummingbird 2 the documentation's snippet uses, with its signatures. Only type-checked.
@_exported public import struct HTTPTypes.HTTPFields
@_exported public import struct HTTPTypes.HTTPResponse
@_exported public import struct NIOCore.ByteBuffer

public struct Request: Sendable {}
public struct ResponseBody: Sendable {
    public init() {}
    public init(byteBuffer: ByteBuffer) {}
}
public struct Response: Sendable, ResponseGenerator {
    public init(status: HTTPResponse.Status, headers: HTTPFields = .init(), body: ResponseBody = .init()) {}
}
public protocol ResponseGenerator {}
public struct Parameters: Sendable {
    public func require(_ s: String) throws -> String { s }
    @_disfavoredOverload
    public func require<T: LosslessStringConvertible>(_ s: String, as: T.Type) throws -> T { throw HTTPError(.badRequest) }
    public func require<T: RawRepresentable>(_ s: String, as: T.Type) throws -> T where T.RawValue == String {
        throw HTTPError(.badRequest)
    }
}
public struct HTTPError: Error {
    public init(_ status: HTTPResponse.Status) {}
}
public protocol RequestContext: Sendable {
    var parameters: Parameters { get }
}
public struct BasicRequestContext: RequestContext {
    public var parameters: Parameters { Parameters() }
}
public struct RouterPath: Sendable, ExpressibleByStringLiteral {
    public init(stringLiteral value: String) {}
}
public final class Router<Context: RequestContext> {
    public init(context: Context.Type = BasicRequestContext.self) {}
    @discardableResult public func get(
        _ path: RouterPath = "", use handler: @Sendable @escaping (Request, Context) async throws -> some ResponseGenerator
    ) -> Self { self }
}
public struct Application {
    public init<Context>(router: Router<Context>) {}
    public func runService() async throws {}
}
