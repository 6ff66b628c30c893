import HTTPTypes
import HTTPWire
import NIOCore

@testable import HTTPListener
@testable import OriginClient

extension FuzzTarget {
    /// What comes over connections.
    ///
    /// Where the bytes are cut into pieces must not matter.
    static let wire = [
        FuzzTarget(name: "request-head") { bytes in
            let pieces = Pieces(bytes)
            let whole = requests(pieces.whole)
            let cut = requests(pieces.all)
            try promise(whole == cut, "requests depend on how they are cut: \(whole) \(cut)")
        },
        FuzzTarget(name: "chunked-body") { bytes in
            let pieces = Pieces(bytes)
            let (whole, cut) = (chunks(pieces.whole), chunks(pieces.all))
            try promise(whole == cut, "a body depends on how it is cut: \(whole) \(cut)")
            try promise(whole.body.count <= bytes.count, "a body is longer than its coding")
        },
        FuzzTarget(name: "response") { bytes in
            let pieces = Pieces(bytes)
            for isHead in [false, true] {
                let (whole, cut) = (responses(pieces.whole, isHead), responses(pieces.all, isHead))
                try promise(whole == cut, "a response depends on how it is cut: \(whole) \(cut)")
            }
        },
    ]

    private static func requests(_ pieces: [[UInt8]]) -> String {
        var parser = RequestParser(limits: ServerLimits())
        var (input, said) = (ByteBuffer(), "")
        do throws(Violation) {
            for piece in pieces {
                input.writeBytes(piece)
                while let head = try parser.next(&input, isOurs: { _ in false }) {
                    said += "\(head.method) \(head.version) \(head.keepAlive) \(head.body) \(head.fields.all)\n"
                }
            }
        } catch { said += "\(error.status)" }
        return said
    }

    private static func chunks(_ pieces: [[UInt8]]) -> (body: [UInt8], end: String) {
        var decoder = ChunkedDecoder(fieldLimit: 16, trailerBytes: 1024)
        var (input, body) = (ByteBuffer(), [UInt8]())
        do throws(Violation) {
            for piece in pieces {
                input.writeBytes(piece)
                reading: while true {
                    switch try decoder.next(&input) {
                    case .bytes(let bytes): body += bytes.readableBytesView
                    case .needsMore: break reading
                    case .end(let trailers): return (body, "end \(trailers.map { "\($0.all)" } ?? "")")
                    }
                }
            }
        } catch { return (body, "\(error.status)") }
        return (body, "more")
    }

    private static func responses(_ pieces: [[UInt8]], _ isHead: Bool) -> String {
        var parser = ResponseParser(limits: UpstreamLimits(), isHead: isHead)
        var (input, heads, body) = (ByteBuffer(), "", [UInt8]())
        do throws(Violation) {
            for piece in pieces {
                input.writeBytes(piece)
                reading: while true {
                    switch try parser.next(&input) {
                    case .interim(let response): heads += "interim \(response)\n"
                    case .head(let response, let length):
                        heads += "\(response.status.code) \(response.headerFields) \(length ?? -1)\n"
                    case .bytes(let bytes): body += bytes.readableBytesView
                    case .needsMore: break reading
                    case .end(let trailers): return heads + "\(body) end \(trailers ?? [:]) \(parser.isReusable)"
                    }
                }
            }
        } catch { return heads + "\(error.status)" }
        return heads + "\(body)"
    }
}

/// An input in pieces: its first byte says how long they are.
struct Pieces {
    let whole: [[UInt8]]
    let all: [[UInt8]]

    init(_ bytes: [UInt8]) {
        let length = Int(bytes.first ?? 0) % 17 + 1
        let rest = Array(bytes.dropFirst())
        whole = [rest]
        all = stride(from: 0, to: rest.count, by: length).map { Array(rest[$0..<min($0 + length, rest.count)]) }
    }
}
