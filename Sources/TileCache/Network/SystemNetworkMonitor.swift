#if canImport(Network)
import Dispatch
import Network
#endif

/// The network as the system tells of it.
///
/// On Apple platforms by `NWPathMonitor` (not run there yet). Elsewhere the routing table is asked once a second whether there is
/// a way to other hosts, which sends nothing; that a network is expensive or constrained is not known there.
public struct SystemNetworkMonitor: NetworkMonitor {
    /// The only one there is.
    public init() {}

    #if canImport(Network)
    // NWPathMonitor is safe to use from any thread, though not every SDK says so.
    private struct Path: @unchecked Sendable { let monitor: NWPathMonitor }

    /// The conditions, until the stream is given up.
    public func conditions() -> AsyncStream<NetworkConditions> {
        AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
            let path = Path(monitor: NWPathMonitor())
            path.monitor.pathUpdateHandler = { path in
                continuation.yield(
                    NetworkConditions(
                        isReachable: path.status != .unsatisfied, isExpensive: path.isExpensive,
                        isConstrained: path.isConstrained))
            }
            continuation.onTermination = { _ in path.monitor.cancel() }
            path.monitor.start(queue: DispatchQueue(label: "tile-cache-network", qos: .utility))
        }
    }
    #else
    /// The conditions, until the stream is given up.
    public func conditions() -> AsyncStream<NetworkConditions> {
        AsyncStream(bufferingPolicy: .bufferingNewest(1)) { continuation in
            let first = Routes.leadAnywhere()
            continuation.yield(NetworkConditions(isReachable: first))
            let task = Task(priority: .utility) {
                var last = first
                while true {
                    // Ends with the stream.
                    do { try await Task.sleep(for: .seconds(1)) } catch { return }
                    let now = Routes.leadAnywhere()
                    if now != last { continuation.yield(NetworkConditions(isReachable: now)) }
                    last = now
                }
            }
            continuation.onTermination = { _ in task.cancel() }
        }
    }
    #endif
}
