/// Work of many holds of the cache's lock, which leaves the lock free now and then.
///
/// Neither that lock nor the one within the process goes to those who have waited longest: who takes it anew at once has it again,
/// and puts of others, who look every 2 ms, would wait for the end of the work. So it is left free for 4 ms whenever 20 ms have passed.
/// Meanwhile those who wait in this process have it, and those in others look once at least. The work takes a fifth longer by
/// that at most, and the others wait for 20 ms, or for one hold where that takes longer.
package struct LongWork {
    /// Nanoseconds for which the lock is left free.
    static let rest = 2 * FolderLock.longestPause

    private let environment: StoreEnvironment
    private let stretch: UInt64
    private var begun: UInt64

    init(_ environment: StoreEnvironment, stretch: UInt64 = 20_000_000) {
        (self.environment, self.stretch) = (environment, stretch)
        begun = environment.ticks()
    }

    /// Called between two holds: leaves the lock free for a while if that is due.
    package mutating func letOthersIn() {
        guard environment.ticks() &- begun >= stretch else { return }
        environment.pause(Self.rest)
        begun = environment.ticks()
    }
}

extension TileStore {
    /// Begins work of many holds of the lock.
    ///
    /// - Parameter milliseconds: After how many the lock is left free for 4: the more, the less that costs, and the longer others wait.
    package func beginLongWork(stretch milliseconds: UInt64 = 20) -> LongWork {
        LongWork(environment, stretch: milliseconds * 1_000_000)
    }
}
