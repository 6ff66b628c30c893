import CacheEngine
import HTTPTypes
import TileStore

#if canImport(FoundationNetworking)
import Foundation
public import FoundationNetworking
#else
public import Foundation
#endif

/// A transport over URLSession, the system's own: the default on Apple platforms.
///
/// It has a session to itself, without cache, cookies and stored credentials, or one made with an app's own configuration
/// (``init(configuration:headLimit:)``). Two things differ from what a server sent:
/// - URLSession decodes `gzip`, `deflate` and `br` by itself. Such a body arrives decoded, and the head loses
///   `Content-Encoding` and `Content-Length`. A request that names no `Accept-Encoding` asks for `identity`.
/// - Header fields of one name arrive joined by commas into one.
///
/// It cannot tell how a connection ended: a body without a length or chunks that is cut off, by a reset or over TLS without
/// close_notify, may count as complete where URLSession says so. `AsyncHTTPClientTransport` fails such an answer.
///
/// On Linux, use `AsyncHTTPClientTransport` from `TileCacheNIO` where you can: it is five times faster. What URLSession
/// cannot keep there:
/// - The body limit holds for what this transport keeps. URLSession itself may have read tens of megabytes by then.
/// - Fields whose names differ in case lose all but one, and a header with a byte that is not UTF-8 fails the request.
/// - Many failures look alike: a head that is too large is ``TransportError/Code/connection``, a
///   reset within the body is ``TransportError/Code/truncated``. An answer that names two lengths is taken.
/// - **Foundation ends the process** if a connection closes within a head, or if trailer fields follow a chunked body.
///   So on Linux it is for servers that you trust.
public final class URLSessionTransport: TileTransport {
    /// How many HTTP/1.1 connections one host gets.
    public let requestsPerHost: Int?
    private let lane: Lane
    /// For hosts that a redirect has led to: without what the app's configuration adds to each request.
    private let elsewhere: Lane?
    private let handlesCookies: Bool
    private let isBackground: Bool

    /// Makes a transport with a session of its own; it connects to nothing yet.
    ///
    /// - Parameters:
    ///   - connectionsPerHost: How many HTTP/1.1 connections one host gets.
    ///   - headLimit: How large the header fields of an answer may be: bytes of names and values, with 4 a field.
    public convenience init(connectionsPerHost: Int = 16, headLimit: Int = 64 << 10) {
        let configuration = URLSessionConfiguration.ephemeral
        configuration.httpCookieStorage = nil
        configuration.httpShouldSetCookies = false
        configuration.httpCookieAcceptPolicy = .never
        configuration.urlCredentialStorage = nil
        configuration.httpMaximumConnectionsPerHost = max(1, connectionsPerHost)
        self.init(configuration: configuration, headLimit: headLimit)
    }

    /// Makes a transport with an app's own configuration: its proxy, cookies, header fields, networks, connections.
    ///
    /// It connects to nothing yet. The configuration is copied. What would come between the cache and its servers is changed in the copy:
    /// - `urlCache` is `nil` and the cache policy that of the protocol: there is one cache, which must see each 304.
    /// - `TileCacheURLProtocol` is not among its protocols: the cache would ask itself.
    /// - Of `httpAdditionalHeaders` those fields are left out that the cache sets itself or whose answers it could not store:
    ///   `Accept-Encoding`, `Range` and conditions (`If-None-Match` and the like), and those whose name or value is no text. A field
    ///   of a request wins over one of the same name here. To another host, to which a redirect leads, go only those that hold
    ///   no secret, such as `Accept-Language`: neither `Authorization` nor fields of the app's own.
    /// - Its time-outs are raised: ``TransportRequest/timeout`` holds alone.
    /// - `waitsForConnectivity` is off (on Apple platforms): the cache has to learn at once that there is no network, to serve
    ///   what it has.
    ///
    /// The cache knows nothing of cookies and additional fields. Where answers depend on them, such as on who is logged in, give
    /// each user a cache (or a source's name) of their own. A background configuration carries no request: each is
    /// ``TransportError/Code/unsupported``.
    /// - Parameters:
    ///   - configuration: The app's. Its `httpMaximumConnectionsPerHost` is ``requestsPerHost``.
    ///   - headLimit: How large the header fields of an answer may be: bytes of names and values, with 4 a field.
    public init(configuration: URLSessionConfiguration, headLimit: Int = 64 << 10) {
        isBackground = configuration.identifier != nil
        // A background session would end the app where it is asked for a data task.
        let copy = isBackground ? nil : configuration.copy() as? URLSessionConfiguration
        let configuration = copy ?? .ephemeral
        configuration.adaptToCache()
        handlesCookies = configuration.httpShouldSetCookies && configuration.httpCookieStorage != nil
        requestsPerHost = max(1, configuration.httpMaximumConnectionsPerHost)
        // A session copies its configuration, which may be changed then.
        lane = Lane(configuration, headLimit: headLimit)
        let added = configuration.httpAdditionalHeaders
        let harmless = added?.filter { name, _ in
            (name as? String).flatMap { HTTPField.Name($0) }.map(Set.harmless.contains) ?? false
        }
        configuration.httpAdditionalHeaders = harmless
        elsewhere = added?.count == harmless?.count ? nil : Lane(configuration, headLimit: headLimit)
    }

    // The session keeps its delegate until it is told to stop.
    deinit {
        lane.session.invalidateAndCancel()
        elsewhere?.session.invalidateAndCancel()
    }

    /// Sends a request and waits for the whole answer.
    ///
    /// - Throws: ``TransportError``.
    public func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        let host = request.head.host
        guard !isBackground else {
            throw TransportError(
                .unsupported,
                "\(host): a background URLSessionConfiguration carries no requests that are waited for; give the transport another one"
            )
        }
        guard var urlRequest = URLRequest(request) else {
            throw TransportError(.unsupported, "\(host): only http and https can be asked")
        }
        urlRequest.httpShouldHandleCookies = handlesCookies
        let lane = request.isRedirected ? elsewhere ?? lane : lane
        let (task, exchanges) = (lane.session.dataTask(with: urlRequest), lane.exchanges)
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                exchanges.begin(task, request, host, continuation)
                task.resume()
                // A cancellation before `begin` found nothing to end.
                if Task.isCancelled { exchanges.cancel(task) }
            }
        } onCancel: {
            exchanges.cancel(task)
        }
        return try result.get()
    }

    /// A session and what is under way in it: the numbers of tasks are its own.
    private struct Lane {
        let session: URLSession
        let exchanges: URLSessionExchanges

        init(_ configuration: URLSessionConfiguration, headLimit: Int) {
            exchanges = URLSessionExchanges(headLimit: headLimit)
            session = URLSession(configuration: configuration, delegate: exchanges, delegateQueue: nil)
        }
    }
}

extension TransportRequest {
    /// The timeout, within what timers can add up.
    fileprivate var longestTimeout: Duration { max(.zero, min(timeout, .seconds(1 << 20))) }

    /// Seconds that nothing need come for as far as URLSession is concerned: beyond every timeout.
    fileprivate static let longestPause = TimeInterval(60 + (1 << 20))
}

extension URLSessionConfiguration {
    /// Takes away what would come between the cache and its servers.
    func adaptToCache() {
        // With no cache, the standard policy neither answers by itself nor adds `Cache-Control: no-cache`.
        urlCache = nil
        requestCachePolicy = .useProtocolCachePolicy
        protocolClasses = protocolClasses?.filter { $0 != TileCacheURLProtocol.self }
        httpAdditionalHeaders = httpAdditionalHeaders?.filter { name, value in
            // On Linux a value that is no text ends the process.
            guard let name = (name as? String)?.lowercased(), value is String else { return false }
            return !Self.fieldsOfTheCache.contains(name)
        }
        timeoutIntervalForRequest = TransportRequest.longestPause
        timeoutIntervalForResource = TransportRequest.longestPause
        #if canImport(Darwin)
        waitsForConnectivity = false
        #endif
    }

    /// Set by the cache, or making answers that it could not store.
    private static let fieldsOfTheCache: Set<String> = [
        "accept-encoding", "range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range",
    ]
}

extension URLRequest {
    /// As URLSession sends it; `nil` if it is none for http or https.
    init?(_ request: TransportRequest) {
        let head = request.head
        guard let scheme = head.scheme?.lowercased(), scheme == "http" || scheme == "https", !head.host.isEmpty,
            let url = URL(string: "\(scheme)://\(head.host)\(head.path ?? "/")")
        else { return nil }
        self.init(url: url)
        httpMethod = head.method.rawValue
        // Not the deadline: on Linux a second is the least, and it is only for a pause. Long enough to never come first.
        timeoutInterval = 60 + request.longestTimeout / .seconds(1)
        #if canImport(Darwin)
        allowsExpensiveNetworkAccess = request.networks.allowsExpensive
        allowsConstrainedNetworkAccess = request.networks.allowsConstrained
        #endif
        for field in head.headerFields { addValue(field.value, forHTTPHeaderField: field.name.rawName) }
        if !head.headerFields.contains(.acceptEncoding) {
            setValue("identity", forHTTPHeaderField: "Accept-Encoding")
        }
    }
}

/// The answers under way in one session.
private final class URLSessionExchanges: NSObject, URLSessionDataDelegate, Sendable {
    typealias Answer = Result<TransportResponse, TransportError>

    private struct Exchange {
        var continuation: CheckedContinuation<Answer, Never>
        var host: String
        var bodyLimit: Int
        var isHead: Bool
        var deadline: Task<Void, Never>
        var head: HTTPResponse?
        var promised: Int?
        var body = Data()
    }
    private let headLimit: Int
    private let running = Locked<[Int: Exchange]>([:])

    init(headLimit: Int) { self.headLimit = headLimit }

    func begin(
        _ task: URLSessionTask, _ request: TransportRequest, _ host: String,
        _ continuation: CheckedContinuation<Answer, Never>
    ) {
        running.withLock { running in
            // Made while the lock is held: a deadline that is over at once then finds the exchange.
            let deadline = Task {
                guard (try? await Task.sleep(for: request.longestTimeout)) != nil else { return }
                fail(task, .timeout, "no complete answer in time")
            }
            running[task.taskIdentifier] = Exchange(
                continuation: continuation, host: host, bodyLimit: max(0, request.bodyLimit),
                isHead: request.head.method == .head, deadline: deadline)
        }
    }

    /// Ends an exchange, once; whatever comes later finds nothing.
    private func end(_ id: Int, _ answer: (Exchange) -> Answer) {
        guard let exchange = running.withLock({ $0.removeValue(forKey: id) }) else { return }
        exchange.deadline.cancel()
        exchange.continuation.resume(returning: answer(exchange))
    }

    private func fail(_ task: URLSessionTask, _ code: TransportError.Code, _ message: String) {
        end(task.taskIdentifier) { .failure(TransportError(code, "\($0.host): \(message)")) }
        task.cancel()
    }

    func cancel(_ task: URLSessionTask) { fail(task, .cancelled, "cancelled") }

    // MARK: What URLSession calls

    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest, completionHandler: @escaping (URLRequest?) -> Void
    ) {
        completionHandler(nil)
    }

    func urlSession(
        _ session: URLSession, dataTask: URLSessionDataTask, didReceive response: URLResponse,
        completionHandler: @escaping (URLSession.ResponseDisposition) -> Void
    ) {
        completionHandler(take(response, of: dataTask) ? .allow : .cancel)
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        let fits = running.withLock { running -> Bool? in
            guard let exchange = running[dataTask.taskIdentifier] else { return nil }
            guard data.count <= exchange.bodyLimit - exchange.body.count else { return false }
            running[dataTask.taskIdentifier]?.body.append(data)
            return true
        }
        if fits == false { fail(dataTask, .bodyTooLarge, "the body is larger than allowed") }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        // On Linux a redirect that is not followed is announced to nobody else.
        if error == nil, running.withLock({ $0[task.taskIdentifier] != nil && $0[task.taskIdentifier]?.head == nil }) {
            guard let response = task.response, take(response, of: task) else { return }
        }
        end(task.taskIdentifier) { exchange in
            if let error {
                return .failure(TransportError(error, host: exchange.host, headArrived: exchange.head != nil))
            }
            guard let head = exchange.head else {
                return .failure(TransportError(.malformed, "\(exchange.host): an answer without a head"))
            }
            if let promised = exchange.promised, exchange.body.count < promised {
                return .failure(
                    TransportError(
                        .truncated, "\(exchange.host): the body has \(exchange.body.count) B of \(promised) B"))
            }
            return .success(TransportResponse(head: head, body: exchange.body))
        }
    }

    /// Notes the head of an answer, if it may go on.
    private func take(_ response: URLResponse, of task: URLSessionTask) -> Bool {
        guard let response = response as? HTTPURLResponse, (200...999).contains(response.statusCode) else {
            // On Linux an interim answer is announced like a final one; what follows it comes as another.
            if let interim = response as? HTTPURLResponse, (100...199).contains(interim.statusCode),
                interim.statusCode != 101
            {
                return true
            }
            fail(task, .malformed, "no final answer")
            return false
        }
        let head: URLSessionHead
        do throws(URLSessionHead.Flaw) {
            head = try URLSessionHead(response, limit: headLimit)
        } catch {
            fail(task, error.code, error.message)
            return false
        }
        let isTooLarge = running.withLock { running in
            guard let exchange = running[task.taskIdentifier] else { return false }
            running[task.taskIdentifier]?.head = head.head
            guard let length = head.promised(isHead: exchange.isHead) else { return false }
            running[task.taskIdentifier]?.promised = length
            return length > exchange.bodyLimit
        }
        if isTooLarge { fail(task, .bodyTooLarge, "the body is larger than allowed") }
        return !isTooLarge
    }
}

extension TransportError {
    /// What an error of URLSession means.
    init(_ error: any Error, host: String, headArrived: Bool) {
        guard let error = error as? URLError else {
            self.init(.connection, "\(host): the connection failed", cause: error)
            return
        }
        #if canImport(FoundationNetworking)
        // Linux has one code for all that TLS refuses; only the text below it tells.
        if error.code == .unknown, error.localizedDescription.contains("SSL") {
            self.init(.tls, "\(host): no trusted encryption", cause: error)
            return
        }
        #endif
        #if canImport(Darwin)
        // Nothing was sent, since the request or the app's configuration does not allow the network: the host is not to blame.
        if error.networkUnavailableReason != nil {
            self.init(.connection, "\(host): the network in use is not allowed for this request", cause: error)
            isUnasked = true
            return
        }
        #endif
        let (code, message): (Code, String) =
            switch error.code {
            case .timedOut: (.timeout, "no complete answer in time")
            case .cannotFindHost, .dnsLookupFailed: (.nameNotFound, "the name is not known")
            // On Linux most errors are unknown ones.
            case .networkConnectionLost where headArrived, .unknown where headArrived:
                (.truncated, "the connection ended within the body")
            case .secureConnectionFailed, .serverCertificateUntrusted, .serverCertificateHasBadDate,
                .serverCertificateHasUnknownRoot, .serverCertificateNotYetValid, .clientCertificateRejected,
                .clientCertificateRequired:
                (.tls, "no trusted encryption")
            // A URL that could not be asked was refused before; Linux says so of an answer in another protocol.
            case .badServerResponse, .cannotParseResponse, .cannotDecodeRawData, .cannotDecodeContentData,
                .unsupportedURL:
                (.malformed, "no HTTP")
            case .dataLengthExceedsMaximum: (.bodyTooLarge, "the body is too large")
            case .badURL: (.unsupported, "the request cannot be sent")
            case .cancelled: (.cancelled, "cancelled")
            default: (.connection, "the connection failed (\(error.code.rawValue))")
            }
        self.init(code, "\(host): \(message)", cause: error)
    }
}
