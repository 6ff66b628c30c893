import Foundation
import HTTPTypes
import TileStore

@testable import TileCache

/// A system with background sessions: has their tasks while no process is there, and tells the next one.
final class ScriptedSystem: BackgroundSessions {
    struct Task: Sendable {
        var name: String
        var request: TransportRequest
    }
    private struct Session {
        var tasks: [Task] = []
        /// What was not told yet, as no process was there.
        var untold: [BackgroundEvent] = []
        var tell: (@Sendable (BackgroundEvent) -> Void)?
        /// The number of its opening: older processes have no say.
        var opening = 0
    }
    private struct State {
        var sessions: [String: Session] = [:]
        var begun: [String] = []
        var cancelled: [String] = []
        var opened: [String] = []
        var openings = 0
    }
    private let state = Locked(State())
    private let queue = DispatchQueue(label: "scripted system")
    private let clock: TestClock

    init(_ clock: TestClock) { self.clock = clock }

    /// Paths of all tasks that were begun, in order.
    var begun: [String] { state.withLock { $0.begun } }
    var cancelled: [String] { state.withLock { $0.cancelled } }
    /// The identifiers of the sessions that were opened.
    var opened: [String] { state.withLock { $0.opened } }
    /// What the system has to do.
    var tasks: [Task] { state.withLock { $0.sessions.values.flatMap(\.tasks) } }

    /// The process is gone; the tasks are not.
    func loseProcess() {
        queue.sync {}
        state.withLock { state in
            for identifier in state.sessions.keys { state.sessions[identifier]?.tell = nil }
        }
    }

    /// Ends the first tasks of all sessions.
    func end(_ count: Int = .max, with answer: (TransportRequest) -> Result<TransportResponse, TransportError>) {
        let now = clock.now
        state.withLock { state in
            for (identifier, session) in state.sessions {
                for task in session.tasks.prefix(count) {
                    state.sessions[identifier]?.untold.append(.ended(task.name, answer(task.request), at: now))
                }
                state.sessions[identifier]?.tasks.removeFirst(min(count, session.tasks.count))
            }
        }
        tellAll()
    }

    /// All was told that happened before the process was started.
    func tellThatAllWasTold() {
        state.withLock { state in
            for identifier in state.sessions.keys { state.sessions[identifier]?.untold.append(.eventsDelivered) }
        }
        tellAll()
    }

    private func tellAll() {
        queue.async { [self] in
            let news = state.withLock { state in
                var news: [(@Sendable (BackgroundEvent) -> Void, BackgroundEvent)] = []
                for (identifier, session) in state.sessions {
                    guard let tell = session.tell else { continue }
                    news += session.untold.map { (tell, $0) }
                    state.sessions[identifier]?.untold = []
                }
                return news
            }
            for (tell, event) in news { tell(event) }
        }
    }

    func open(_ identifier: String, tell: @escaping @Sendable (BackgroundEvent) -> Void) -> any BackgroundSession {
        let number = state.withLock { state in
            state.openings += 1
            state.opened.append(identifier)
            var session = state.sessions[identifier] ?? Session()
            session.opening = state.openings
            session.tell = tell
            session.untold.append(.listed(session.tasks.map(\.name)))
            state.sessions[identifier] = session
            return state.openings
        }
        tellAll()
        return Opened(system: self, identifier: identifier, number: number)
    }

    private struct Opened: BackgroundSession {
        let system: ScriptedSystem
        let identifier: String
        let number: Int

        private func change(_ body: (inout State, inout Session) -> Void) {
            system.state.withLock { state in
                guard var session = state.sessions[identifier], session.opening == number, session.tell != nil else {
                    return
                }
                body(&state, &session)
                state.sessions[identifier] = session
            }
        }

        func start(_ request: TransportRequest, named name: String) {
            change { state, session in
                session.tasks.append(Task(name: name, request: request))
                state.begun.append(request.head.path ?? "")
            }
        }

        func cancel(_ name: String) {
            change { state, session in
                state.cancelled += session.tasks.filter { $0.name == name }.map { $0.request.head.path ?? "" }
                session.tasks.removeAll { $0.name == name }
            }
        }

        func invalidate() {
            change { state, session in
                state.cancelled += session.tasks.map { $0.request.head.path ?? "" }
                (session.tasks, session.tell) = ([], nil)
            }
        }
    }
}
