import HTTPTypes
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TileCacheTesting

@testable import OriginClient

/// The client towards origins, on an event loop of its own, with one pool of connections for each origin.
final class ClientUnderTest: Sendable {
    private let group: MultiThreadedEventLoopGroup
    private let pools: NIOLoopBoundBox<Pools>
    var loop: any EventLoop { pools.eventLoop }

    private struct Pools {
        var limits: UpstreamLimits
        var tls: OriginTLS
        var byURL: [String: UpstreamPool] = [:]
    }

    /// - Parameter certificate: Whom to trust besides the system's authorities.
    init(certificate: TestCertificate?, limits: UpstreamLimits) throws {
        let tls = certificate == nil ? OriginTLS() : trusting
        try tls.prepare()
        group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        pools = .makeBoxSendingValue(Pools(limits: limits, tls: tls), eventLoop: group.next())
    }

    func stop() async throws {
        try await loop.submit { for pool in self.pools.value.byURL.values { pool.close() } }.get()
        try await group.shutdownGracefully()
    }

    /// The pool for an origin; on the loop.
    func pool(_ url: String) throws -> UpstreamPool {
        if let pool = pools.value.byURL[url] { return pool }
        guard let origin = Origin(url) else { throw WireError(what: "no origin: \(url)") }
        let pool = UpstreamPool(origin: origin, limits: pools.value.limits, loop: loop, tls: pools.value.tls)
        pools.value.byURL[url] = pool
        return pool
    }

    /// Sends a request and waits for what comes of it, in words.
    ///
    /// `103 200 5 hello end` is an interim response, a final one with its length and body, and a good end. A length that is
    /// not known is `-`. In place of `end` stands what went wrong.
    func ask(
        _ url: String, _ target: String = "/", method: String = "GET", body: UpstreamRequest.Body = .none,
        _ script: Script = Script()
    ) async throws -> String {
        try await loop.flatSubmit { self.begin(url, target, method: method, body: body, script) }.get()
    }

    /// Sends a request from the loop; see ``ask(_:_:method:body:_:)``.
    func begin(
        _ url: String, _ target: String = "/", method: String = "GET", body: UpstreamRequest.Body = .none,
        _ script: Script = Script()
    ) -> EventLoopFuture<String> {
        let outcome = loop.makePromise(of: String.self)
        let request = UpstreamRequest(method: method, target: target, fields: [:], body: body)
        let recorder = Recorder(script) { outcome.succeed($0) }
        do { recorder.call = try pool(url).call(request, receiver: recorder) } catch { outcome.fail(error) }
        return outcome.futureResult
    }

    /// Waits until something is so on the loop, one turn after the other.
    func until(_ isSo: @escaping @Sendable (ClientUnderTest) throws -> Bool) async throws {
        while try await !loop.submit({ try isSo(self) }).get() {}
    }
}

/// What the one who asks does while the answer comes; everything is called on the loop.
struct Script: Sendable {
    /// The request's head is out.
    var whenReady: @Sendable (UpstreamCall) -> Void = { _ in }
    /// The final head has come.
    var whenHead: @Sendable (UpstreamCall) -> Void = { _ in }
    /// Some of the body has come.
    var whenBytes: @Sendable (UpstreamCall) -> Void = { _ in }
}

/// Writes down what an origin answers.
private final class Recorder: UpstreamReceiver {
    var call: UpstreamCall?
    private let script: Script
    private var said = ""
    private var body = ""
    // The call does not hold its receiver.
    private var me: Recorder?
    private let over: (String) -> Void

    init(_ script: Script, _ over: @escaping (String) -> Void) {
        self.script = script
        self.over = over
        me = self
    }

    func upstreamIsReady(_ call: UpstreamCall) { script.whenReady(call) }

    func upstreamSent(interim: HTTPResponse) { said += "\(interim.status.code) " }

    func upstreamSent(head: HTTPResponse, length: Int64?) {
        said += "\(head.status.code) \(length.map { "\($0)" } ?? "-") "
        if let call { script.whenHead(call) }
    }

    func upstreamSent(bytes: ByteBuffer) {
        body += String(buffer: bytes)
        if let call { script.whenBytes(call) }
    }

    func upstreamEnded(trailers: HTTPFields?) {
        end((trailers ?? [:]).map { "\($0.name)=\($0.value) " }.joined() + "end")
    }

    func upstreamFailed(_ failure: UpstreamFailure) {
        switch failure {
        case .malformed: end("malformed")
        case .headTooLarge: end("headTooLarge")
        case .unreachable: end("unreachable")
        case .untrusted: end("untrusted")
        case .forbidden: end("forbidden")
        default: end("\(failure)")
        }
    }

    private func end(_ word: String) {
        over(said + (body.isEmpty ? "" : body + " ") + word)
        (me, call) = (nil, nil)
    }
}

/// The certificate of all tests; `nil` without the `openssl` command.
let certificate = try? TestCertificate()

/// The settings of a client that trusts it: made once, as reading the system's authorities takes its time.
private let trusting = OriginTLS(certificateAuthorities: certificate?.path)

/// Runs a body with an origin and a client, and stops both afterwards, whatever happens.
func withOrigin(
    isSecure: Bool, answersHeads: Bool = false, limits change: (inout UpstreamLimits) -> Void = { _ in },
    answer: @escaping LocalOrigin.Answer, _ body: (LocalOrigin, ClientUnderTest) async throws -> Void
) async throws {
    if isSecure, certificate == nil { return print("no openssl command: not tested over https") }
    var limits = UpstreamLimits()
    // On a busy machine nothing fails for want of time.
    (limits.connect, limits.head, limits.bodyStall, limits.idle) = (.hours(1), .hours(1), .hours(1), .hours(1))
    limits.sweep = .milliseconds(10)
    change(&limits)
    let origin = try await LocalOrigin.start(
        certificate: isSecure ? certificate : nil, answersHeads: answersHeads, answer: answer)
    try await withClient(limits: limits) { try await body(origin, $0) }
}

func withClient(
    limits: UpstreamLimits = UpstreamLimits(), trusting certificate: TestCertificate? = certificate,
    _ body: (ClientUnderTest) async throws -> Void
) async throws {
    let client = try ClientUnderTest(certificate: certificate, limits: limits)
    do { try await body(client) } catch {
        try await client.stop()
        throw error
    }
    try await client.stop()
}
