/// What waits to be written to a bucket: bounded in number and bytes, and in order for each name.
///
/// One write of a name is under way at a time, and one more waits at most: a newer one takes its place. What does not fit, and what
/// has waited for too long, is dropped and counted: it is in the store of the one who writes, so nothing is lost but that another asks
/// the origin too.
package struct WriteQueue<Write: Sendable>: Sendable {
    /// How much there may be.
    package struct Limits: Hashable, Sendable {
        /// Writes that wait or are under way.
        package var number = 10_000
        /// Their bytes.
        package var bytes = 64 << 20
        /// Of these, so many are under way at a time.
        package var underWay = 32
        /// How long one may wait (ns).
        package var age: UInt64 = 30_000_000_000

        package init() {}
    }

    /// One that is to be written now; ``done(_:)`` must follow.
    package struct Job: Sendable {
        package let name: String
        package let write: Write
    }

    private struct Waiting {
        var write: Write
        var bytes: Int
        var since: UInt64
        /// Tells its place in the line from those of writes that it has replaced.
        var number: UInt64
    }

    private let limits: Limits
    private var waiting: [String: Waiting] = [:]
    /// The names in the order in which they came; some were dropped since.
    private var line: [(name: String, number: UInt64)] = []
    private var head = 0
    /// Bytes of what is under way, by name.
    private var underWay: [String: Int] = [:]
    /// Those that wait for the write of their name that is under way.
    private var blocked: Set<String> = []
    private var last: UInt64 = 0

    /// Bytes of all that waits or is under way.
    package private(set) var bytes = 0
    /// Writes that were dropped: there was no room, or no time.
    package private(set) var dropped = 0

    package init(_ limits: Limits = Limits()) { self.limits = limits }

    /// Writes that wait or are under way.
    package var count: Int { waiting.count + underWay.count }
    package var isEmpty: Bool { count == 0 }

    /// Adds a write, in place of one of that name that waits.
    ///
    /// - Parameter bytes: What it takes of memory.
    package mutating func add(_ write: Write, name: String, bytes: Int, at now: UInt64) {
        remove(name)
        guard count < limits.number, bytes <= limits.bytes - self.bytes else {
            dropped += 1
            return
        }
        last += 1
        waiting[name] = Waiting(write: write, bytes: bytes, since: now, number: last)
        self.bytes += bytes
        if underWay[name] != nil { blocked.insert(name) } else { line.append((name, last)) }
    }

    /// Forgets a write that waits: what it says does not hold any more.
    package mutating func remove(_ name: String) {
        guard let old = waiting.removeValue(forKey: name) else { return }
        bytes -= old.bytes
        blocked.remove(name)
    }

    /// The next one to be written; `nil` if there is none, or enough is under way.
    package mutating func next(at now: UInt64) -> Job? {
        while underWay.count < limits.underWay, head < line.count {
            let (name, number) = line[head]
            head += 1
            if head > 64, head > line.count / 2 {
                line.removeFirst(head)
                head = 0
            }
            guard let item = waiting[name], item.number == number else { continue }
            waiting[name] = nil
            guard now &- item.since <= limits.age else {
                bytes -= item.bytes
                dropped += 1
                continue
            }
            underWay[name] = item.bytes
            return Job(name: name, write: item.write)
        }
        return nil
    }

    /// One that was under way is over.
    package mutating func done(_ name: String) {
        guard let size = underWay.removeValue(forKey: name) else { return }
        bytes -= size
        if blocked.remove(name) != nil, let item = waiting[name] { line.append((name, item.number)) }
    }

    /// Drops all that waits.
    package mutating func clear() {
        for item in waiting.values { bytes -= item.bytes }
        dropped += waiting.count
        (waiting, line, head, blocked) = ([:], [], 0, [])
    }
}
