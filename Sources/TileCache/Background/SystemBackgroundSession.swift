#if canImport(Darwin)
import Foundation
import TileStore

/// What opens background sessions on this system.
let systemBackgroundSessions: (any BackgroundSessions)? = SystemBackgroundSessions()

private struct SystemBackgroundSessions: BackgroundSessions {
    func open(_ identifier: String, tell: @escaping @Sendable (BackgroundEvent) -> Void) -> any BackgroundSession {
        SystemBackgroundSession(identifier, tell)
    }
}

/// A background URLSession.
///
/// A task's name is its `taskDescription`, which the system keeps.
private final class SystemBackgroundSession: NSObject, BackgroundSession, URLSessionDownloadDelegate, Sendable {
    /// What has come of a task whose end was not told yet.
    private struct Arrival {
        var body: Data?
        var at: Timestamp
        var isTooLarge = false
    }
    private struct State {
        var session: URLSession?
        var tasks: [String: URLSessionTask] = [:]
        var arrivals: [Int: Arrival] = [:]
        /// Tasks that were cancelled and have not ended yet.
        var cancelled: Set<Int> = []
    }
    /// Larger than every source's limit that makes sense; what the request allowed, another process may have known.
    private static let largestBody: Int64 = 64 << 20
    private static let headLimit = 64 << 10

    private let tell: @Sendable (BackgroundEvent) -> Void
    private let state = Locked(State())

    init(_ identifier: String, _ tell: @escaping @Sendable (BackgroundEvent) -> Void) {
        self.tell = tell
        super.init()
        let configuration = URLSessionConfiguration.background(withIdentifier: identifier)
        configuration.adaptToCache()
        configuration.httpCookieStorage = nil
        configuration.httpShouldSetCookies = false
        configuration.urlCredentialStorage = nil
        configuration.sessionSendsLaunchEvents = true
        configuration.isDiscretionary = false
        // Events come one after another, on a queue of the session's own.
        let session = URLSession(configuration: configuration, delegate: self, delegateQueue: nil)
        state.withLock { $0.session = session }
        session.getAllTasks { tasks in
            let names = self.state.withLock { state -> [String] in
                for task in tasks {
                    guard let name = task.taskDescription, task.state != .completed, task.state != .canceling else {
                        continue
                    }
                    state.tasks[name] = task
                }
                return Array(state.tasks.keys)
            }
            // After the ends that were told by then.
            session.delegateQueue.addOperation { self.tell(.listed(names)) }
        }
    }

    func start(_ request: TransportRequest, named name: String) {
        guard let urlRequest = URLRequest(request) else {
            let error = TransportError(.unsupported, "\(request.head.host): only http and https can be asked")
            return later { self.tell(.ended(name, .failure(error), at: Timestamp(Date()))) }
        }
        state.withLock { state in
            guard let task = state.session?.downloadTask(with: urlRequest) else { return }
            task.taskDescription = name
            state.tasks[name] = task
            task.resume()
        }
    }

    func cancel(_ name: String) {
        let task = state.withLock { state in
            let task = state.tasks.removeValue(forKey: name)
            if let task { state.cancelled.insert(task.taskIdentifier) }
            return task
        }
        task?.cancel()
    }

    func invalidate() {
        let session = state.withLock { state in
            defer { (state.session, state.tasks) = (nil, [:]) }
            return state.session
        }
        session?.invalidateAndCancel()
    }

    private func later(_ body: @escaping @Sendable () -> Void) {
        state.withLock { $0.session }?.delegateQueue.addOperation(body)
    }

    // MARK: What URLSession calls

    func urlSession(_ session: URLSession, downloadTask: URLSessionDownloadTask, didFinishDownloadingTo location: URL) {
        let values = try? location.resourceValues(forKeys: [.fileSizeKey, .contentModificationDateKey])
        // The file is gone when this returns. Its time is when the system had received it.
        var arrival = Arrival(at: Timestamp(values?.contentModificationDate ?? Date()))
        if Int64(values?.fileSize ?? 0) > Self.largestBody {
            arrival.isTooLarge = true
        } else {
            arrival.body = try? Data(contentsOf: location)
        }
        state.withLock { $0.arrivals[downloadTask.taskIdentifier] = arrival }
    }

    func urlSession(
        _ session: URLSession, downloadTask: URLSessionDownloadTask, didWriteData bytesWritten: Int64,
        totalBytesWritten: Int64, totalBytesExpectedToWrite: Int64
    ) {
        guard totalBytesWritten > Self.largestBody else { return }
        state.withLock {
            $0.arrivals[downloadTask.taskIdentifier] = Arrival(at: Timestamp(Date()), isTooLarge: true)
        }
        downloadTask.cancel()
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        guard let name = task.taskDescription else { return }
        let (arrival, isCancelled) = state.withLock { state in
            if state.tasks[name]?.taskIdentifier == task.taskIdentifier { state.tasks[name] = nil }
            return (
                state.arrivals.removeValue(forKey: task.taskIdentifier),
                state.cancelled.remove(task.taskIdentifier) != nil
            )
        }
        // One that was cancelled may have a successor under its name, and its end would be taken for that one's.
        if isCancelled { return }
        let answer: Result<TransportResponse, TransportError>
        do throws(TransportError) {
            answer = .success(try response(of: task, arrival, error))
        } catch { answer = .failure(error) }
        tell(.ended(name, answer, at: arrival?.at ?? Timestamp(Date())))
    }

    func urlSessionDidFinishEvents(forBackgroundURLSession session: URLSession) { tell(.eventsDelivered) }

    private func response(
        of task: URLSessionTask, _ arrival: Arrival?, _ error: (any Error)?
    ) throws(TransportError) -> TransportResponse {
        let asked = task.originalRequest?.url
        let host = asked?.host ?? ""
        if arrival?.isTooLarge == true {
            throw TransportError(.bodyTooLarge, "\(host): the body is larger than allowed")
        }
        if let error { throw TransportError(error, host: host, headArrived: task.response != nil) }
        guard let response = task.response as? HTTPURLResponse else {
            throw TransportError(.malformed, "\(host): an answer without a head")
        }
        // The system has followed redirects. Those to other hosts are for the cache to judge, which cannot here.
        let answered = response.url
        guard answered?.scheme == asked?.scheme, answered?.host == asked?.host, answered?.port == asked?.port else {
            throw TransportError(
                .unsupported,
                "\(host): the answer came from another host, which a download in the background does not take")
        }
        do throws(URLSessionHead.Flaw) {
            let head = try URLSessionHead(response, limit: Self.headLimit)
            if let arrival, arrival.body == nil {
                throw URLSessionHead.Flaw(code: .truncated, message: "the body's file cannot be read")
            }
            let isHead = task.originalRequest?.httpMethod == "HEAD"
            let body = arrival?.body ?? Data()
            if let promised = head.promised(isHead: isHead), body.count < promised {
                throw URLSessionHead.Flaw(code: .truncated, message: "the body has \(body.count) B of \(promised) B")
            }
            return TransportResponse(head: head.head, body: body)
        } catch {
            throw TransportError(error.code, "\(host): \(error.message)")
        }
    }
}
#else
/// Nothing suspends processes here.
let systemBackgroundSessions: (any BackgroundSessions)? = nil
#endif
