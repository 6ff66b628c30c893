import CacheEngine
import TileStore

/// The network as it is at a moment.
public struct NetworkConditions: Hashable, Sendable {
    /// Whether there is a way to other hosts.
    public var isReachable: Bool
    /// Whether the system calls it expensive: cellular, or another device's hotspot.
    public var isExpensive: Bool
    /// Whether Low Data Mode is on for it.
    public var isConstrained: Bool

    /// Describes a network; without arguments, one that anything may use.
    public init(isReachable: Bool = true, isExpensive: Bool = false, isConstrained: Bool = false) {
        self.isReachable = isReachable
        self.isExpensive = isExpensive
        self.isConstrained = isConstrained
    }
}

/// Tells of the network: the system's own, ``SystemNetworkMonitor``, or one of yours.
public protocol NetworkMonitor: Sendable {
    /// The conditions of this moment, as soon as they are known, and again after each change, until the stream is given up.
    ///
    /// Whoever waits for a server that could not be reached tries again with each element after the first that is reachable. A
    /// stream that ends keeps nobody from anything. Until its first element, downloads that may not use every network begin nothing.
    func conditions() -> AsyncStream<NetworkConditions>
}

/// What a download does about the network: a value that is told the conditions one after the other.
struct NetworkPolicy: Hashable, Sendable {
    /// Why a network may not be used.
    enum Objection: Hashable, Sendable {
        case isExpensive
        case isConstrained
    }

    enum Decision: Hashable, Sendable {
        /// Nothing further is sent.
        case wait(Objection)
        /// Requests may be sent.
        ///
        /// - Parameter triesAgain: Whether servers that could not be reached are to be tried again at once.
        case goOn(triesAgain: Bool)
    }

    let allowed: NetworkUse
    private var isFirst = true

    init(_ allowed: NetworkUse) { self.allowed = allowed }

    /// Takes in what has become of the network.
    ///
    /// Where there is none, requests fail by themselves at once, and a server on this machine or in this network may be there all
    /// the same.
    mutating func on(_ conditions: NetworkConditions) -> Decision {
        defer { isFirst = false }
        if conditions.isExpensive, !allowed.allowsExpensive { return .wait(.isExpensive) }
        if conditions.isConstrained, !allowed.allowsConstrained { return .wait(.isConstrained) }
        return .goOn(triesAgain: conditions.isReachable && !isFirst)
    }
}

extension TileCacheError {
    /// A download waits for another network.
    init(_ objection: NetworkPolicy.Objection, source: SourceName) {
        let network =
            switch objection {
            case .isExpensive: "the network in use is an expensive one (cellular, or a hotspot)"
            case .isConstrained: "Low Data Mode is on for the network in use"
            }
        self.init(
            .networkNotAllowed,
            "\(source): \(network), which the download's options do not allow; it goes on by itself on another network")
    }
}
