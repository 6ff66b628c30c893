import CacheEngine
import HTTPListener
import HTTPTypes
import NIOCore
import TileStore

/// Takes the bytes of an origin's answer where the fill wants them: to the client, into memory, to both, or nowhere.
///
/// What is collected comes at the origin's speed, whoever reads it, as others may wait for it; a client that is slower is
/// sent it from there. What is not collected comes at the client's speed. Belongs to its event loop.
final class BodyRelay {
    private let exchange: Exchange?
    private let budget: StagingBudget
    /// Stops the origin, or lets it go on, and says whether the client is waited for.
    private let hold: (_ holds: Bool) -> Void
    private let onFailure: (any Error) -> Void

    private var route = Fill.Route.drop
    /// Whether the head has gone to the client, and the body may follow.
    private var hasHead = false
    private var collector: BodyCollector?
    /// Bytes of the collected body that went to the client.
    private var handedOn = 0
    /// Whether the client takes the body more slowly than it is collected, and is sent it from there.
    private var isBehind = false
    /// What was collected of a body that turned out to be too large to be stored, until the client has it; and what came
    /// next.
    private var backlog: (collected: BodyCollector, next: ByteBuffer)?

    /// - Parameters:
    ///   - exchange: The client; `nil` for a refresh in the background.
    ///   - hold: Called with `true` to read the origin no further while the client takes its time, then with `false`.
    ///   - onFailure: Called if bytes that are stored cannot be read.
    init(
        _ exchange: Exchange?, _ budget: StagingBudget, hold: @escaping (Bool) -> Void,
        onFailure: @escaping (any Error) -> Void
    ) {
        self.exchange = exchange
        self.budget = budget
        self.hold = hold
        self.onFailure = onFailure
    }

    /// The client that the bytes go to, if there is one.
    private var client: Exchange? { hasHead && exchange?.isOpen ?? false ? exchange : nil }

    /// The head has gone to the client.
    func headIsOut() { hasHead = true }

    /// Where the bytes go from now on.
    ///
    /// - Parameter length: The body's length, if it is known.
    func take(_ new: Fill.Route, length: Int64?) {
        switch (route, new) {
        case (.collect, .relay): stopCollecting()
        case (_, .collect(let limit)): collector = BodyCollector(length: length, limit: limit, budget: budget)
        default: break
        }
        route = new
    }

    /// The client is gone: what is being collected comes at full speed.
    func clientIsGone() {
        isBehind = false
        backlog = nil
        hold(false)
    }

    // MARK: Bytes

    /// Takes a part; `false` if it is too much to be collected.
    ///
    /// Then the fill decides, and the part is not lost.
    func append(_ bytes: ByteBuffer) -> Bool {
        switch route {
        case .drop: return true
        case .relay:
            pass(bytes)
            return true
        case .collect:
            guard collector?.append(bytes) ?? false else {
                overflow = bytes
                return false
            }
            guard !isBehind, let client else { return true }
            client.send(bytes)
            handedOn += bytes.readableBytes
            if !client.isWritable {
                isBehind = true
                client.whenWritable { [weak self] in self?.catchUp() }
            }
            return true
        }
    }

    /// The part that was too much.
    private var overflow: ByteBuffer?

    /// Sends the client a part at its speed.
    private func pass(_ bytes: ByteBuffer) {
        guard let client else { return }
        client.send(bytes)
        waitForClient(client)
    }

    /// Lets the origin wait until the client has taken what was sent to it, before the head too.
    func waitForReader() {
        if let exchange { waitForClient(exchange) }
    }

    private func waitForClient(_ client: Exchange) {
        guard client.isOpen, !client.isWritable else { return }
        hold(true)
        client.whenWritable { [weak self] in self?.hold(false) }
    }

    /// The body is too large to be stored, and is only passed on.
    private func stopCollecting() {
        guard let collected = collector else { return }
        collector = nil
        let next = overflow ?? ByteBuffer()
        overflow = nil
        guard isBehind else {
            pass(next)
            return
        }
        backlog = (collected, next)
        hold(true)
    }

    /// Sends a client that is behind what has been collected meanwhile.
    private func catchUp() {
        guard isBehind, let client, let source = collector ?? backlog?.collected else { return }
        while handedOn < source.count {
            guard client.isWritable else {
                client.whenWritable { [weak self] in self?.catchUp() }
                return
            }
            let end = min(handedOn + BodySender.pieceBytes, source.count)
            client.send(source.slice(handedOn..<end))
            handedOn = end
        }
        isBehind = false
        guard let (_, next) = backlog else { return }
        backlog = nil
        client.send(next)
        if client.isWritable { hold(false) } else { waitForClient(client) }
    }

    // MARK: The end

    /// All that was collected; the relay keeps nothing of it.
    func collected() -> HeldBody? {
        defer { collector = nil }
        return collector?.finish()
    }

    /// Ends the client's answer.
    ///
    /// - Parameter body: What was collected, for a client that is behind.
    /// - Returns: What still sends the body to a client that is slow.
    func finish(_ body: HeldBody? = nil, trailers: HTTPFields?) -> BodySender? {
        guard let client else { return nil }
        hasHead = false
        guard isBehind, let body else {
            client.finish(trailers: trailers)
            return nil
        }
        isBehind = false
        // What is small enough waits in the connection's buffers, as a stored body does: the budget is for others.
        guard body.data.count > Candidate.wholeUpTo else {
            client.send(ByteBuffer(body.data, handedOn..<body.data.count))
            client.finish(trailers: trailers)
            return nil
        }
        let rest = BodyPart(prefix: "", bytes: Int64(handedOn)..<Int64(body.data.count))
        let sender = BodySender(
            client, .memory(body.data), rest.bytes.isEmpty ? [] : [rest], trailers: trailers, owner: body,
            onFailure: onFailure)
        sender.run()
        return sender
    }
}
