import HTTPCaching
import OriginClient
import TileStore

extension S3Error {
    /// What an answer means that the operation cannot be answered with.
    ///
    /// - Parameter sentAt: What the request had as its time.
    init(_ answer: S3Answer, sentAt: Timestamp, _ what: String) {
        let status = answer.status
        let serverCode = answer.errorCode
        func error(_ code: Code, _ words: String) -> S3Error {
            S3Error(code, "\(what): \(words)", status: status, serverCode: serverCode)
        }
        let named = "\(status)\(serverCode.map { " \($0)" } ?? "")"
        // An answer to HEAD has no code.
        let isFarApart =
            answer.date.map { abs($0.seconds(since: HTTPDate(seconds: sentAt.seconds)).clamped) > 900 } ?? false
        if serverCode == "RequestTimeTooSkewed" || (status == 403 && serverCode == nil && isFarApart) {
            let ours = HTTPDate(seconds: sentAt.seconds)
            let theirs = answer.date.map { "\($0)" } ?? "nothing"
            self = error(
                .clock,
                "the clocks differ too much: this machine's says \(ours), the server's says \(theirs); 15 minutes are the most. Set the wrong one"
            )
            return
        }
        switch (status, serverCode) {
        case (404, "NoSuchBucket"): self = error(.missingBucket, "there is no such bucket; create it or mend its name")
        case (429, _), (500..., _), (_, "SlowDown"): self = error(.unavailable, "the server answers \(named)")
        case (_, "SignatureDoesNotMatch"):
            self = error(
                .refused,
                "\(named): the secret key does not belong to the access key, or something changes requests on their way"
            )
        case (_, "InvalidAccessKeyId"): self = error(.refused, "\(named): the server does not know the access key")
        case (_, "ExpiredToken"), (_, "InvalidToken"):
            self = error(.refused, "\(named): the session token is not valid any more; give a new one")
        case (_, "AuthorizationHeaderMalformed"):
            self = error(.refused, "\(named): mostly the bucket has another region")
        case (401, _), (403, _): self = error(.refused, "\(named): the access key may not do this")
        case (300..<400, _): self = error(.refused, "\(named): the bucket has another endpoint or region")
        case (200..<300, _):
            self = error(.malformed, "an answer with status \(named), which this request does not have")
        default: self = error(.refused, "the server refuses it with \(named)")
        }
    }

    /// Why there was no whole answer.
    init(_ failure: UpstreamFailure, hasHead: Bool, _ what: String) {
        let (code, words): (Code, String) =
            switch failure {
            case .unreachable(let why): (.connection, "no connection: \(why)")
            case .nameNotFound: (.connection, "the host's name is not known")
            case .untrusted(let why): (.untrusted, "no trusted encryption: \(why)")
            case .forbidden(let why): (.connection, "refused: \(why)")
            case .connectTimeout: (.timeout, "no connection in time")
            case .timeout: (.timeout, "no answer in time")
            case .closed:
                (.connection, hasHead ? "the answer broke off" : "the connection was closed without an answer")
            case .malformed(let why): (.malformed, "no HTTP: \(why)")
            case .headTooLarge(let why): (.tooLarge, why)
            case .overloaded: (.unavailable, "too many requests wait for the server already")
            case .clientTooSlow, .clientMayBeGone, .cancelled: (.cancelled, "cancelled")
            }
        self.init(code, "\(what): \(words)")
    }
}

extension Int {
    /// Without the one number that has no positive.
    fileprivate var clamped: Int { self == .min ? .max : self }
}
