/// Which networks something may use, in the system's own words.
public struct NetworkUse: Hashable, Sendable {
    /// Whether it may use a network that the system calls expensive: cellular, or another device's hotspot.
    public var allowsExpensive: Bool
    /// Whether it may use a network for which Low Data Mode is on.
    public var allowsConstrained: Bool

    /// Says which networks may be used.
    public init(allowsExpensive: Bool, allowsConstrained: Bool) {
        self.allowsExpensive = allowsExpensive
        self.allowsConstrained = allowsConstrained
    }

    /// Every network.
    public static let any = NetworkUse(allowsExpensive: true, allowsConstrained: true)
    /// Neither expensive networks nor Low Data Mode.
    public static let unmetered = NetworkUse(allowsExpensive: false, allowsConstrained: false)

    /// What either of two allows.
    package func union(_ other: NetworkUse) -> NetworkUse {
        NetworkUse(
            allowsExpensive: allowsExpensive || other.allowsExpensive,
            allowsConstrained: allowsConstrained || other.allowsConstrained)
    }
}
