import HTTPCaching
import HTTPTypes
import HTTPWire
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TileCacheTesting

@testable import HTTPListener

/// The listener alone, on the loopback, in front of a responder that does what a test says.
final class ServerUnderTest {
    let server: HTTPServer
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    /// - Parameters:
    ///   - answer: Answers at once, as hits are answered.
    ///   - respond: Answers in its own time.
    ///   - change: Changes the server's configuration at last.
    init(
        limits: ServerLimits, tls: ServerTLS?, observer: (any ExchangeObserver)?,
        onHandshakeFailure: (@Sendable () -> Void)?, answer: @escaping TestResponder.Answer,
        respond: @escaping TestResponder.Respond, change: (inout HTTPServer.Configuration) -> Void
    ) async throws {
        var configuration = HTTPServer.Configuration()
        configuration.addresses = [ListenAddress(port: 0, isSecure: tls != nil)]
        configuration.tls = tls
        configuration.onHandshakeFailure = onHandshakeFailure
        configuration.limits = limits
        configuration.observer = observer
        change(&configuration)
        server = try await HTTPServer.start(configuration, on: group) { _, _ in
            TestResponder(answer: answer, respond: respond)
        }
    }

    func stop() async throws {
        try await server.shutdown(grace: .seconds(2))
        try await group.shutdownGracefully()
    }

    func connect() throws -> Wire { try Wire(port: server.port) }

    /// A client whose system takes little more than it reads.
    func connectReadingLittle() throws -> Wire {
        let wire = try Wire.unconnected()
        wire.holdAtMost(1 << 16)
        try wire.connect(to: server.port)
        return wire
    }

    /// Asks on a connection of its own.
    func ask(_ method: String = "GET", _ target: String = "/a") throws -> Answer {
        let wire = try connect()
        wire.send("\(method) \(target) HTTP/1.1\r\nHost: a\r\n\r\n")
        guard let answer = wire.answer(to: method) else { throw WireError(what: "no answer to \(method) \(target)") }
        return answer
    }
}

/// Runs a body with a server and stops it afterwards, whatever happens.
func withServer(
    limits: ServerLimits = ServerLimits(), tls: ServerTLS? = nil, observer: (any ExchangeObserver)? = nil,
    onHandshakeFailure: (@Sendable () -> Void)? = nil,
    answer: @escaping TestResponder.Answer = { _, _, _ in nil },
    respond: @escaping TestResponder.Respond = TestResponder.echo,
    change: (inout HTTPServer.Configuration) -> Void = { _ in }, _ body: (ServerUnderTest) async throws -> Void
) async throws {
    let server = try await ServerUnderTest(
        limits: limits, tls: tls, observer: observer, onHandshakeFailure: onHandshakeFailure, answer: answer,
        respond: respond, change: change)
    do { try await body(server) } catch {
        try await server.stop()
        throw error
    }
    try await server.stop()
}

/// Limits with which slow clients are noticed soon.
func impatient(_ change: (inout ServerLimits) -> Void) -> ServerLimits {
    var limits = ServerLimits()
    limits.sweep = .milliseconds(10)
    change(&limits)
    return limits
}

/// Answers as closures say.
final class TestResponder: Responder {
    typealias Answer = @Sendable (RequestHead, borrowing Answering, inout ByteBuffer) -> Answered?
    typealias Respond = @Sendable (Exchange) -> Void

    private let answer: Answer
    private let respond: Respond

    init(answer: @escaping Answer, respond: @escaping Respond) {
        self.answer = answer
        self.respond = respond
    }

    func answer(
        _ request: RequestHead, _ answering: borrowing Answering, into buffer: inout ByteBuffer
    ) -> Answered? { answer(request, answering, &buffer) }

    func respond(_ exchange: Exchange) { respond(exchange) }

    /// Answers with the request's target, a blank, and its body; `*` with nothing.
    @Sendable static func echo(_ exchange: Exchange) {
        if exchange.head.path == "*" {
            exchange.reply(HTTPResponse(status: .noContent))
        } else {
            echo(exchange, exchange.head.target + " ")
        }
    }

    private static func echo(_ exchange: Exchange, _ text: String) {
        exchange.nextBodyPart { part in
            switch part {
            case .bytes(let bytes): echo(exchange, text + String(buffer: bytes))
            case .end: exchange.reply(HTTPResponse(status: .ok), body: ByteBuffer(string: text))
            case .failed: break
            }
        }
    }

    /// Takes the request's body and answers at its end.
    @Sendable static func swallow(_ exchange: Exchange) {
        exchange.nextBodyPart { part in
            switch part {
            case .bytes: swallow(exchange)
            case .end: exchange.reply(HTTPResponse(status: .noContent))
            case .failed: break
            }
        }
    }

    /// Answers with so many bytes, in pieces, as fast as the client takes them.
    static func pour(_ exchange: Exchange, _ bytes: Int, by piece: Int = 64 << 10) {
        exchange.send(HTTPResponse(status: .ok), length: Int64(bytes))
        pourOn(exchange, bytes, piece)
    }

    private static func pourOn(_ exchange: Exchange, _ bytes: Int, _ piece: Int) {
        var left = bytes
        while exchange.isOpen, left > 0 {
            guard exchange.isWritable else {
                let rest = left
                exchange.whenWritable { pourOn(exchange, rest, piece) }
                return
            }
            exchange.send(ByteBuffer(repeating: UInt8(ascii: "x"), count: min(left, piece)))
            left -= min(left, piece)
        }
        exchange.finish()
    }
}

/// What a test was told: a list that any thread may add to.
final class Notes<Element: Sendable>: Sendable {
    private let box = NIOLockedValueBox<[Element]>([])

    func add(_ element: Element) { box.withLockedValue { $0.append(element) } }
    var all: [Element] { box.withLockedValue { $0 } }
}
