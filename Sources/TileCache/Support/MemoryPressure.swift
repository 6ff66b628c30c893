#if canImport(Darwin)
import Dispatch
#endif

/// Calls a function whenever the system says that memory is short: on Apple platforms; elsewhere no system says so.
///
/// Not run on an Apple platform yet.
package final class MemoryPressure: @unchecked Sendable {
    // Unchecked: a dispatch source is safe to use from any thread, though not every SDK says so.
    #if canImport(Darwin)
    private let source: any DispatchSourceMemoryPressure

    /// Calls it from now on, on any thread, until this object is gone.
    package init(_ onPressure: @escaping @Sendable () -> Void) {
        source = DispatchSource.makeMemoryPressureSource(
            eventMask: [.warning, .critical], queue: .global(qos: .utility))
        source.setEventHandler(handler: onPressure)
        source.activate()
    }

    deinit { source.cancel() }
    #else
    /// Never calls it.
    package init(_ onPressure: @escaping @Sendable () -> Void) {}
    #endif
}
