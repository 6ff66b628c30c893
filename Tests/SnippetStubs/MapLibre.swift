// swift-format-ignore-file

// What of MapLibre Native the documentation's snippet uses, with its documented signatures. Only type-checked.
@_exported public import Foundation
#if canImport(FoundationNetworking)
@_exported public import FoundationNetworking
#endif

public final class MLNNetworkConfiguration: NSObject {
    nonisolated(unsafe) public static let sharedManager = MLNNetworkConfiguration()
    public var sessionConfiguration: URLSessionConfiguration!
}
@MainActor open class MLNMapView: NSObject {
    public init(frame: CGRect, styleURL: URL?) {}
}
