import Foundation
import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Darwin)
import Darwin
#endif

/// A server on the loopback that answers as a script says, byte for byte, and remembers what it was asked.
package final class ScriptedOrigin: Sendable {
    /// A request as it came.
    package struct Request: Sendable {
        package var line: String
        package var fields: [String: String]
        package var body: String
        /// The lines after a chunked body.
        package var trailers = ""
        /// Its place among all requests, from 1.
        package var number: Int

        package var method: String { String(line.split(separator: " ").first ?? "") }
        package var target: String { String(line.split(separator: " ").dropFirst().first ?? "") }
    }

    package typealias Script = @Sendable (Request, Wire) -> Bool

    private struct State {
        var requests: [Request] = []
        var listener: Int32 = -1
        /// Keeps the port once it is stopped.
        var held: HeldPort?
    }

    private let state: Locked<State>
    package let port: Int

    /// Listens.
    ///
    /// The script answers a request on the wire and says whether the connection stays open.
    ///
    /// - Parameter readsBodies: Whether the requests' bodies are read before they are answered.
    package init(readsBodies: Bool = true, _ script: @escaping Script) throws {
        let listener = socket(AF_INET, Wire.stream, 0)
        // So that the port can be held afterwards while connections end.
        var yes: Int32 = 1
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        let isBound = try withLoopback(0) { bind(listener, $0, $1) == 0 && listen(listener, 512) == 0 }
        guard isBound, let port = boundPort(listener) else { throw WireError(what: "listen: \(errno)") }
        self.port = port
        let state = Locked(State(listener: listener))
        self.state = state
        Thread.detachNewThread {
            while true {
                let descriptor = accept(listener, nil, nil)
                guard descriptor >= 0 else { return }
                Thread.detachNewThread { Self.serve(Wire(descriptor), state, readsBodies, script) }
            }
        }
    }

    /// An origin that answers every request with one text.
    package convenience init(always response: String) throws {
        try self.init { _, wire in
            wire.send(response)
            return true
        }
    }

    deinit { stop() }

    /// Refuses connections from now on.
    package func stop() {
        state.withLock { state in
            if state.listener >= 0 {
                shutdown(state.listener, Int32(SHUT_RDWR))
                close(state.listener)
                // Where that fails it is free, as any other.
                state.held = try? HeldPort(port)
            }
            state.listener = -1
        }
    }

    package var requests: [Request] { state.withLock { $0.requests } }
    package var count: Int { requests.count }

    private static func serve(_ wire: Wire, _ state: Locked<State>, _ readsBodies: Bool, _ script: Script) {
        while let head = wire.take(through: "\r\n\r\n") {
            let lines = head.split(separator: "\r\n").map(String.init)
            var request = Request(line: lines.first ?? "", fields: [:], body: "", number: 0)
            for line in lines.dropFirst() {
                let parts = line.split(separator: ":", maxSplits: 1)
                let value = (parts.count > 1 ? parts[1] : "").drop { $0 == " " }
                request.fields[parts[0].lowercased()] = String(value)
            }
            if !readsBodies {
                // They stay where they are.
            } else if let length = request.fields["content-length"].flatMap(Int.init) {
                request.body = String(decoding: wire.take(length), as: UTF8.self)
            } else if request.fields["transfer-encoding"] != nil {
                while let line = wire.take(through: "\r\n"), let size = Int(line.dropLast(1), radix: 16) {
                    if size == 0 {
                        while let line = wire.take(through: "\r\n"), line != "\r\n" { request.trailers += line }
                        break
                    }
                    request.body += String(decoding: wire.take(size), as: UTF8.self)
                    _ = wire.take(through: "\r\n")
                }
            }
            state.withLock { state in
                request.number = state.requests.count + 1
                state.requests.append(request)
            }
            guard script(request, wire) else { return }
        }
    }
}

/// Writes a whole response: a status line, fields and a body.
package func reply(_ status: String = "200 OK", _ fields: [String] = [], _ body: String = "") -> String {
    let lines = ["HTTP/1.1 " + status] + fields + ["Content-Length: \(body.utf8.count)"]
    return lines.joined(separator: "\r\n") + "\r\n\r\n" + body
}
