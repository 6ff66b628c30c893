import HTTPCaching
import HTTPTypes

@testable import CacheEngine

// The actions of the machines in a word or two, for tables.

extension CacheTransaction.Action {
    var word: String {
        switch self {
        case .look(let mayWait): mayWait ? "look and wait" : "look"
        case .awaitWrites: "await writes"
        case .askLeave: "ask leave"
        case .abandonProbe: "abandon probe"
        case .fetch(let forwarding, let joining, let probe):
            "fetch \(joining) \(forwarding.cause.rawValue)" + (probe == nil ? "" : " as probe")
        case .startPatience: "start patience"
        case .leaveFill: "leave fill"
        case .answer(_, _, _, let status, let from): "answer \(from)" + (status.detail.map { " (\($0))" } ?? "")
        case .give(_, _, let from): "answer \(from)"
        case .makeReady: "make ready"
        case .refreshBehind: "refresh"
        case .relay(let response, _, _): "relay \(response.status.code)"
        case .refuse(let refusal, _): "refuse \(refusal.status)"
        case .abort: "abort"
        case .done: "done"
        }
    }
}

extension FillNews {
    var word: String {
        switch self {
        case .found: "found"
        case .head(let response, _, let status): "\(response.status.code)" + (status.stored ? " stored" : "")
        case .confirmed: "confirmed"
        case .useStale(_, let status): "use stale, \(status)"
        case .failed: "failed"
        case .ended: "ended"
        }
    }
}

extension FillEnd {
    var word: String {
        switch self {
        case .stored: "stored"
        case .held(let answer): answer.isForEqualRequests ? "held for equals" : "held"
        case .failed: "failed"
        case .error(let status): "error \(status)"
        case .alone: "alone"
        case .again: "again"
        case .tile(let news): "tile \(news.source)"
        case .noTile: "no tile"
        }
    }
}

extension Fill.Action {
    var word: String {
        switch self {
        case .lookAgain: "look again"
        case .ask(let fields): fields[.ifNoneMatch].map { "ask if not \($0)" } ?? "ask"
        case .cancelOrigin: "cancel"
        case .judge(.answered, _): "origin is there"
        case .judge(.failed(let setback), _):
            "origin failed: \(setback.failure)" + (setback.blame == .unconnected ? ", no connection" : "")
                + (setback.retryAfter.map { ", back in \($0.components.seconds) s" } ?? "")
        case .abandonProbe: "abandon probe"
        case .report: "report"
        case .settle(let keys, _): "settle \(keys.count)"
        case .makeRoom(let length): "room" + (length.map { " for \($0)" } ?? "")
        case .route(.drop): "drop"
        case .route(.relay): "pass on"
        case .route(.collect): "collect"
        case .admitNobody: "admit nobody"
        case .tellOwner(let news): "owner: " + news.word
        case .sendFollowersAway(let news): "followers: " + news.word
        case .remember(let wasOfUse): wasOfUse ? "of use" : "of no use"
        case .store: "store"
        case .update: "update"
        case .startForgetting: "start forgetting"
        case .end(let news): "end: " + news.word
        }
    }
}
