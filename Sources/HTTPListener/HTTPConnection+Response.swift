import HTTPTypes
import HTTPWire
import NIOCore

// The responses of exchanges in HTTP/1.1.
extension HTTPConnection: ExchangeLink {
    func sendInterim(_ response: HTTPResponse) {
        var buffer = buffer(256)
        buffer.writeStatusLine(response.status.code, reason: response.status.reasonPhrase)
        for field in response.headerFields where !field.isFraming { buffer.writeField(field) }
        buffer.writeStaticString("\r\n")
        send(buffer, flush: true)
    }

    /// The connection ends with such a response, which has to say so: the client may have sent more requests behind the body.
    func wantsNoMoreBody() { if isBodyIncomplete { mustClose = true } }

    func sendHead(
        _ response: HTTPResponse, length: Int64?, isEmpty: Bool, to request: RequestHead
    ) -> Exchange.Framing {
        let status = response.status.code
        let framing: Exchange.Framing =
            isEmpty ? .none : length.map { .length($0) } ?? (request.isHTTP11 ? .chunked : .untilClose)
        if framing == .untilClose { (mustClose, isCloseDelimited) = (true, true) }
        var buffer = buffer(1024)
        buffer.writeStatusLine(status, reason: response.status.reasonPhrase)
        if !response.headerFields.contains(.date) { loop.time.writeDate(into: &buffer) }
        for field in response.headerFields where !field.isFraming { buffer.writeField(field) }
        if let length, status >= 200, status != 204 { buffer.writeField("Content-Length: ", Int(clamping: length)) }
        if framing == .chunked { buffer.writeStaticString("Transfer-Encoding: chunked\r\n") }
        buffer.writeConnection(keepAlive: willKeepAlive, isHTTP11: request.isHTTP11)
        buffer.writeStaticString("\r\n")
        send(buffer, flush: false)
        return framing
    }

    func sendPart(_ bytes: ByteBuffer, _ framing: Exchange.Framing) {
        guard framing == .chunked else {
            send(part: bytes)
            return
        }
        guard bytes.readableBytes >= SmallWrites.size else {
            var chunk = buffer(bytes.readableBytes + 16)
            chunk.writeChunk(bytes)
            send(part: chunk)
            return
        }
        var line = buffer(24)
        line.writeChunkSize(bytes.readableBytes)
        send(line, flush: false)
        send(bytes, flush: false)
        var end = buffer(2)
        end.writeStaticString("\r\n")
        send(end, flush: true)
    }

    func sendEnd(_ trailers: HTTPFields?, _ framing: Exchange.Framing) {
        guard framing == .chunked else { return }
        var buffer = buffer(64)
        buffer.writeStaticString("0\r\n")
        if let trailers { for field in trailers where !field.isFraming { buffer.writeField(field) } }
        buffer.writeStaticString("\r\n")
        send(buffer, flush: false)
    }
}
