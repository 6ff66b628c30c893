import HTTPCaching

// What a failure means for the next attempt, the host and the tile.
extension TileFill.Failure {
    /// Whether asking again soon makes sense.
    package var mayPass: Bool {
        switch self {
        case .waiting, .hook, .forbidden, .noRoom: false
        case .noAnswer(let none): none.mayPass
        case .status(let status, _, _): [429, 500, 502, 503, 504].contains(status)
        case .unusable(let objection, _, _): objection == .incomplete
        }
    }

    /// Whether there was no time left to ask at all.
    var isOutOfTime: Bool {
        if case .noAnswer(let none) = self { none.isTimeout && none.setback.blame == .unasked } else { false }
    }

    /// The same, but of hosts that want to be left alone for so long.
    func with(retryAfter: Duration) -> TileFill.Failure {
        if case .status(let status, let host, _) = self {
            .status(status, host: host, retryAfter: retryAfter)
        } else {
            self
        }
    }

    /// What it says about the host and the tile.
    package var setback: OriginSetback {
        switch self {
        case .waiting(_, let failure): OriginSetback(.none, failure)
        case .hook: OriginSetback(.none, .unreachable)
        case .noAnswer(let none): none.setback
        case .status(let status, _, let retryAfter):
            OriginSetback(
                status == 429 ? .overloaded : status >= 500 ? .error : .none, .status(status),
                retryAfter: retryAfter.flatMap { $0 > .zero ? $0 : nil })
        // An answer that is no tile, whatever its status says.
        case .forbidden, .unusable, .noRoom: OriginSetback(.none, .status(200))
        }
    }
}
