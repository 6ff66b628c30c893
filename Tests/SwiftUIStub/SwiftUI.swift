// swift-format-ignore-file

// What of SwiftUI the adapter and the documentation's snippets use, with Apple's signatures, for Linux alone. Nothing is
// shown: views are made, and their contents asked for by tests.
#if canImport(Darwin)
#error("This is no SwiftUI; it only takes its place where there is none.")
#endif

@MainActor @preconcurrency public protocol View {
    associatedtype Body: View
    @ViewBuilder @MainActor @preconcurrency var body: Self.Body { get }
}
extension Never: View {
    public var body: Never { fatalError("a view without a body") }
}
@MainActor @resultBuilder public struct ViewBuilder {
    public static func buildBlock<each Content: View>(_ content: repeat each Content) -> TupleView<(repeat each Content)> {
        TupleView((repeat each content))
    }
    public static func buildBlock<Content: View>(_ content: Content) -> Content { content }
}
public struct TupleView<T>: View {
    public var value: T
    public init(_ value: T) { self.value = value }
    public var body: Never { fatalError("a view without a body") }
}

// MARK: Views

public struct VStack<Content: View>: View {
    public init(@ViewBuilder content: () -> Content) {}
    public var body: Never { fatalError("a view without a body") }
}
public struct Text: View {
    public init(_ content: some StringProtocol) {}
    public var body: Never { fatalError("a view without a body") }
}
public struct ProgressView: View {
    public init<V: BinaryFloatingPoint>(value: V?, total: V = 1.0) {}
    public var body: Never { fatalError("a view without a body") }
}
public struct Button: View {
    public init(_ title: some StringProtocol, action: @escaping @MainActor () -> Void) {}
    public var body: Never { fatalError("a view without a body") }
}

// MARK: State

@propertyWrapper public struct State<Value> {
    private let initial: Value
    public init(wrappedValue: Value) { initial = wrappedValue }
    public var wrappedValue: Value { get { initial } nonmutating set {} }
    public var projectedValue: Binding<Value> {
        let initial = self.initial
        return Binding(get: { initial }, set: { _ in })
    }
}
@propertyWrapper public struct Binding<Value> {
    private let read: () -> Value
    private let write: (Value) -> Void
    public init(get: @escaping () -> Value, set: @escaping (Value) -> Void) { (read, write) = (get, set) }
    public var wrappedValue: Value { get { read() } nonmutating set { write(newValue) } }
    public var projectedValue: Binding<Value> { self }
}

// MARK: Views of UIKit and AppKit

public struct UIViewRepresentableContext<Representable: UIViewRepresentable> {
    public let coordinator: Representable.Coordinator
    public init(coordinator: Representable.Coordinator) { self.coordinator = coordinator }
}
@MainActor @preconcurrency public protocol UIViewRepresentable: View where Self.Body == Never {
    associatedtype UIViewType: AnyObject
    associatedtype Coordinator = Void
    @MainActor @preconcurrency func makeUIView(context: Self.Context) -> Self.UIViewType
    @MainActor @preconcurrency func updateUIView(_ uiView: Self.UIViewType, context: Self.Context)
    @MainActor @preconcurrency func makeCoordinator() -> Self.Coordinator
    typealias Context = UIViewRepresentableContext<Self>
}
extension UIViewRepresentable {
    public var body: Never { fatalError("a view without a body") }
}
public struct NSViewRepresentableContext<Representable: NSViewRepresentable> {
    public let coordinator: Representable.Coordinator
    public init(coordinator: Representable.Coordinator) { self.coordinator = coordinator }
}
@MainActor @preconcurrency public protocol NSViewRepresentable: View where Self.Body == Never {
    associatedtype NSViewType: AnyObject
    associatedtype Coordinator = Void
    @MainActor @preconcurrency func makeNSView(context: Self.Context) -> Self.NSViewType
    @MainActor @preconcurrency func updateNSView(_ nsView: Self.NSViewType, context: Self.Context)
    @MainActor @preconcurrency func makeCoordinator() -> Self.Coordinator
    typealias Context = NSViewRepresentableContext<Self>
}
extension NSViewRepresentable {
    public var body: Never { fatalError("a view without a body") }
}
