import HTTPCaching
import TileStore
import TileStoreTesting

@testable import TileProxyServer

/// A row of a table of cache behaviour: requests one after another, what the origin says to each, what the client gets.
struct CacheRow: Sendable, CustomStringConvertible {
    /// One request.
    struct Step: Sendable {
        /// Seconds that pass before it.
        var after = 0
        var method = "GET"
        /// Fields of the client's request.
        ///
        /// `{+60}` stands for the time a minute from now.
        var asks: [String] = []
        /// The origin's status line and fields, should it be asked.
        var status = "200 OK"
        var says: [String] = []
        /// Fields of the 304 that the origin gives if it is asked with a condition.
        var confirms: [String]?
        /// The step whose body the client must get; 0 for any, and for none.
        var from = 0
        /// Whether the origin must be asked; `nil` if it does not matter.
        var reaches: Bool?
        /// The status that the client must get.
        var gets = 200
        /// Fields that the client must get: `Name: value`, or `-Name` for one it must not get.
        var sees: [String] = []
        /// Fields that the origin must get, in the same way.
        var originSees: [String] = []
    }

    let description: String
    let steps: [Step]

    init(_ description: String, _ steps: Step...) {
        self.description = description
        self.steps = steps
    }

    /// Runs the row on a proxy of its own; what went wrong, in words.
    func run() async throws -> [String] {
        let (steps, box) = (steps, Locked<ManualTime?>(nil))
        let origin = try ScriptedOrigin { request, wire in
            let number = request.fields["x-step"].flatMap(Int.init) ?? 1
            let step = steps[number - 1]
            let isConditional = request.fields["if-none-match"] != nil || request.fields["if-modified-since"] != nil
            let time = box.withLock { $0?() } ?? 0
            if let fields = step.confirms, isConditional {
                wire.send(
                    "HTTP/1.1 304 Not Modified\r\n" + fields.map { Self.dated($0, time) + "\r\n" }.joined() + "\r\n")
            } else {
                let fields = step.says.map { Self.dated($0, time) }
                let text = reply(step.status, fields, request.method == "HEAD" ? "" : "step \(number)")
                let isEmpty = request.method == "HEAD" || step.status.hasPrefix("204") || step.status.hasPrefix("304")
                wire.send(isEmpty ? String(text.prefix(upTo: text.range("Content-Length")) + "\r\n") : text)
            }
            return true
        }
        var wrong: [String] = []
        try await withProxy(origin) { proxy async throws in
            let clock = proxy.clock
            box.withLock { $0 = { clock.now.seconds } }
            for (index, step) in steps.enumerated() {
                clock.advance(seconds: Int64(step.after))
                let before = origin.count
                let asks = step.asks.map { Self.dated($0, clock.now.seconds) }
                let answer = try proxy.ask(step.method, "/row", asks + ["X-Step: \(index + 1)"])
                wrong += check(step, answer, origin, before).map { "step \(index + 1): " + $0 }
            }
        }
        return wrong
    }

    typealias ManualTime = @Sendable () -> Int64

    private func check(_ step: Step, _ answer: Answer, _ origin: ScriptedOrigin, _ before: Int) -> [String] {
        var wrong: [String] = []
        let reached = origin.count > before
        if let expected = step.reaches, expected != reached {
            wrong.append(expected ? "the origin was not asked" : "the origin was asked")
        }
        if answer.status != step.gets { wrong.append("status \(answer.status), expected \(step.gets)") }
        if step.from > 0, answer.text != "step \(step.from)" {
            wrong.append("body \(answer.text), expected step \(step.from)")
        }
        for field in step.sees { wrong += complaint(field, "client", answer.fields.map { ($0.name, $0.value) }) }
        if let last = origin.requests.last, reached {
            for field in step.originSees { wrong += complaint(field, "origin", last.fields.map { ($0.key, $0.value) }) }
        }
        return wrong
    }

    private func complaint(_ field: String, _ who: String, _ fields: [(String, String)]) -> [String] {
        let parts = field.split(separator: ":", maxSplits: 1).map(String.init)
        let name = parts[0].drop { $0 == "-" }.lowercased()
        let values = fields.filter { $0.0.lowercased() == name }.map(\.1)
        if field.hasPrefix("-") { return values.isEmpty ? [] : ["the \(who) sees \(name): \(values)"] }
        guard parts.count > 1 else { return values.isEmpty ? ["the \(who) does not see \(name)"] : [] }
        let expected = String(parts[1].drop { $0 == " " })
        return values.contains(expected) ? [] : ["the \(who) sees \(name): \(values), expected \(expected)"]
    }

    /// Puts times in the place of `{+seconds}`.
    private static func dated(_ text: String, _ now: Int64) -> String {
        guard let open = text.firstIndex(of: "{"), let close = text.firstIndex(of: "}"), open < close,
            let offset = Int(text[text.index(after: open)..<close])
        else { return text }
        let date = HTTPDate(seconds: now).adding(seconds: offset).description
        return text[..<open] + date + text[text.index(after: close)...]
    }
}

extension String {
    /// Where a text begins in it; its end if it does not occur.
    fileprivate func range(_ text: String) -> String.Index {
        firstRange(of: text)?.lowerBound ?? endIndex
    }
}
