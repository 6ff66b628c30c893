/// Bounds how many small writes wait in a channel at a time.
///
/// A channel counts the bytes that wait, and a buffer of a few bytes takes hundreds. With chunks of one byte, the bytes
/// that a channel permits to wait would take megabytes. So every so many small writes, the last of them has to have gone
/// out before there are more.
package struct SmallWrites {
    /// Writes of fewer bytes are small: their overhead counts, and copying them costs less than writing them in parts.
    package static let size = 1024
    /// How many there may be.
    package static let most = 128

    private var count = 0
    /// Whether the last one has to go out before there are more.
    package private(set) var isFull = false

    package init() {}

    /// Counts a write.
    ///
    /// - Returns: Whether ``wentOut()`` has to be called once it has gone out.
    package mutating func add(_ bytes: Int) -> Bool {
        guard bytes < Self.size, !isFull else { return false }
        count += 1
        isFull = count == Self.most
        return isFull
    }

    /// All that were counted have gone out.
    package mutating func wentOut() { (count, isFull) = (0, false) }
}
