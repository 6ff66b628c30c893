import HTTPTypes
import NIOCore
import Testing
import TileCache
import TileCacheTesting

/// A server that breaks the rules, and how each transport has to name that.
struct HostileServer: Sendable, CustomTestStringConvertible {
    var name: String
    var answer: LocalAnswer
    var expected: TransportError.Code
    /// What URLSession on Linux makes of it instead; `nil` for the same.
    var onLinuxURLSession: Gap?
    var timeout: Duration = .seconds(300)

    var testDescription: String { name }

    /// How URLSession on Linux breaks the contract.
    enum Gap: Sendable {
        /// Another error.
        case error(TransportError.Code)
        /// This error or that, as time allows.
        case anyError
        /// An answer where there should be an error.
        case answer
        /// Foundation ends the process: "Transfer completed, but there's no response". Cannot be tested in this one.
        case trap
    }

    static let all: [HostileServer] = [
        HostileServer(name: "hangs before the head", answer: .raw(.hang), expected: .timeout, timeout: .seconds(1)),
        HostileServer(
            name: "hangs within the head", answer: .raw(.text("HTTP/1.1 200 OK\nContent-Le"), .hang),
            expected: .timeout, timeout: .seconds(1)),
        HostileServer(
            name: "hangs within the body", answer: .raw(.text("HTTP/1.1 200 OK\nContent-Length: 9\n\nbody"), .hang),
            expected: .timeout, timeout: .seconds(1)),
        HostileServer(
            name: "drips the body",
            answer: .raw(
                .text("HTTP/1.1 200 OK\nContent-Length: 99999\n\n"), .drip(1, every: .milliseconds(20))),
            expected: .timeout, timeout: .seconds(1)),
        HostileServer(
            name: "drips the head",
            answer: .raw(.text("HTTP/1.1 200 OK\nA: "), .drip(UInt8(ascii: "a"), every: .milliseconds(20))),
            expected: .timeout, timeout: .seconds(1)),
        HostileServer(
            name: "sends interim answers for ever",
            answer: .raw(.endless(Array("HTTP/1.1 103 Early Hints\r\n\r\n".utf8))), expected: .timeout,
            onLinuxURLSession: .anyError, timeout: .seconds(1)),
        HostileServer(
            name: "closes before the head", answer: .raw(.close), expected: .connection,
            onLinuxURLSession: .error(.malformed)),
        HostileServer(
            name: "closes within the head", answer: .raw(.text("HTTP/1.1 200 OK\nContent-Le"), .close),
            expected: .connection, onLinuxURLSession: .trap),
        HostileServer(name: "resets before the head", answer: .raw(.reset), expected: .connection),
        HostileServer(
            name: "resets within the body",
            answer: .raw(.text("HTTP/1.1 200 OK\nContent-Length: 9\n\nbody"), .reset), expected: .connection,
            onLinuxURLSession: .error(.truncated)),
        HostileServer(
            name: "promises a longer body",
            answer: .raw(.text("HTTP/1.1 200 OK\nContent-Length: 9\n\nbody"), .close), expected: .truncated),
        HostileServer(
            name: "leaves out the last chunk",
            answer: .raw(.text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\nbody\n"), .close),
            expected: .truncated),
        HostileServer(
            name: "ends within a chunk",
            answer: .raw(.text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n9\nbody"), .close),
            expected: .truncated),
        HostileServer(
            name: "writes a chunk's length in letters",
            answer: .raw(.text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nxyz\nbody\n0\n\n"), .close),
            expected: .malformed, onLinuxURLSession: .error(.truncated)),
        HostileServer(
            name: "names two lengths",
            answer: .raw(.text("HTTP/1.1 200 OK\nContent-Length: 4\nContent-Length: 5\n\nbody!"), .close),
            expected: .malformed, onLinuxURLSession: .answer),
        HostileServer(
            name: "names a negative length",
            answer: .raw(.text("HTTP/1.1 200 OK\nContent-Length: -4\n\nbody"), .close), expected: .malformed,
            onLinuxURLSession: .error(.connection)),
        HostileServer(
            name: "promises 10 GB", answer: .raw(.text("HTTP/1.1 200 OK\nContent-Length: 10737418240\n\n"), .hang),
            expected: .bodyTooLarge),
        HostileServer(
            name: "sends an endless body in chunks",
            answer: .raw(
                .text("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n"),
                .endless(Array("10000\r\n".utf8) + [UInt8](repeating: 7, count: 0x10000) + Array("\r\n".utf8))),
            expected: .bodyTooLarge),
        HostileServer(
            name: "sends an endless body without a length",
            answer: .raw(.text("HTTP/1.1 200 OK\n\n"), .endless([UInt8](repeating: 7, count: 0x10000))),
            expected: .bodyTooLarge),
        HostileServer(
            name: "sends a megabyte in one field",
            answer: .raw(
                .text("HTTP/1.1 200 OK\nA: "), .bytes([UInt8](repeating: 97, count: 1 << 20)),
                .text("\nContent-Length: 0\n\n")),
            expected: .headTooLarge, onLinuxURLSession: .error(.connection)),
        HostileServer(
            name: "sends a megabyte of fields",
            answer: .raw(
                .text(
                    "HTTP/1.1 200 OK\n"
                        + (0..<8192).map { "Field-\($0): \(String(repeating: "a", count: 114))\n" }.joined()
                        + "Content-Length: 0\n\n")),
            expected: .headTooLarge, onLinuxURLSession: .error(.connection)),
        HostileServer(
            name: "sends a field of 66 KB",
            answer: LocalAnswer(.ok, [.server: String(repeating: "a", count: 66 << 10)], text: "body"),
            expected: .headTooLarge),
        HostileServer(
            name: "sends fields without end",
            answer: .raw(.text("HTTP/1.1 200 OK\n"), .endless(Array("Field: value\r\n".utf8))),
            expected: .headTooLarge, onLinuxURLSession: .anyError),
        HostileServer(
            name: "speaks no HTTP", answer: .raw(.text("220 mail.example ESMTP\n"), .close), expected: .malformed),
        HostileServer(
            name: "sends noise", answer: .raw(.bytes((0...255).reversed()), .close), expected: .malformed),
        HostileServer(
            name: "has a status of two digits", answer: .raw(.text("HTTP/1.1 20 OK\n\n"), .close),
            expected: .malformed),
        HostileServer(
            name: "has a status of 000",
            answer: .raw(.text("HTTP/1.1 000 X\nContent-Length: 0\n\n"), .close), expected: .malformed),
        HostileServer(
            name: "has a status of 099, and a body",
            answer: .raw(.text("HTTP/1.1 099 X\nTransfer-Encoding: chunked\n\n4\nbody\n0\n\n")),
            expected: .malformed),
        HostileServer(
            name: "has a field name with a blank",
            answer: .raw(.text("HTTP/1.1 200 OK\nA field: 1\nContent-Length: 0\n\n"), .close),
            expected: .malformed, onLinuxURLSession: .error(.connection)),
        HostileServer(
            name: "switches to a protocol that nobody asked for",
            answer: .raw(.text("HTTP/1.1 101 Switching Protocols\nUpgrade: tiles\nConnection: upgrade\n\n"), .close),
            expected: .malformed),
    ]
}
