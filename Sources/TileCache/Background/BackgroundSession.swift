import TileStore

/// What a background session tells.
package enum BackgroundEvent: Sendable {
    /// The names of the tasks that it had when it was opened, those left out that had ended by then.
    case listed([String])
    /// A task has ended: with a whole answer and when that had come, or without.
    case ended(String, Result<TransportResponse, TransportError>, at: Timestamp)
    /// All was told that happened while no process was there.
    case eventsDelivered
}

/// A session whose tasks the system carries out, also while the process is suspended or gone.
package protocol BackgroundSession: Sendable {
    /// Gives the system a task under a name. Does not wait, and tells nothing before it returns.
    func start(_ request: TransportRequest, named name: String)
    /// Ends a task, and does not tell that it has ended: that could be taken for the end of the next one of its name.
    func cancel(_ name: String)
    /// Ends all tasks and the session.
    func invalidate()
}

/// What opens background sessions: the system.
package protocol BackgroundSessions: Sendable {
    /// Opens the session with an identifier. It has the tasks that an earlier process has given it.
    ///
    /// - Parameter tell: Told what happens, one event after another, never within a call of the session.
    func open(_ identifier: String, tell: @escaping @Sendable (BackgroundEvent) -> Void) -> any BackgroundSession
}
