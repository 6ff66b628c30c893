import NIOCore

/// How long a slow client is still waited for: a value, without a clock.
///
/// Waiting uses it up, and every byte that moves gives some of it back, up to where it began. So a pause may be as long as
/// the whole of it, and over time a client must keep up the rate, however it spreads its bytes.
struct Patience: Equatable {
    /// What it begins with, and the most that there can be.
    let most: TimeAmount
    /// The slowest rate, in bytes a second.
    let rate: Int
    /// What is left.
    private(set) var left: TimeAmount

    init(_ most: TimeAmount, rate: Int) {
        self.most = most
        self.rate = max(1, rate)
        left = most
    }

    /// Whether the client is not to be waited for any longer.
    var isOver: Bool { left <= .zero }

    /// Accounts for a time of waiting in which so many bytes moved.
    mutating func spend(_ waited: TimeAmount, for bytes: Int) {
        let (product, overflow) = Int64(clamping: max(0, bytes)).multipliedReportingOverflow(by: 1_000_000_000)
        let earned = overflow ? most : .nanoseconds(product / Int64(rate))
        left = min(most, left - max(.zero, waited) + min(earned, most))
    }

    /// Begins anew.
    mutating func renew() { left = most }
}
