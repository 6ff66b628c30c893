package import HTTPTypes
package import NIOCore

// Responses as bytes. Nothing that is written here can end a line early: HTTPTypes lets no CR, LF or NUL into a field's
// value, names and methods are tokens, and reasons are filtered.

extension ByteBuffer {
    /// Writes `HTTP/1.1 200 OK` with its line end; without a reason the usual one is taken.
    package mutating func writeStatusLine(_ status: Int, reason: String = "") {
        if status == 200, reason.isEmpty || reason == "OK" {
            writeStaticString("HTTP/1.1 200 OK\r\n")
            return
        }
        writeStaticString("HTTP/1.1 ")
        writeDecimal(status)
        writeInteger(UInt8(32))
        if reason.isEmpty {
            writeStaticString(usualReason(status))
        } else {
            for byte in reason.utf8 where byte.isFieldText { writeInteger(byte) }
        }
        writeStaticString("\r\n")
    }

    /// Writes fields in their order, verbatim.
    package mutating func writeFields(_ fields: HTTPFields) {
        for field in fields { writeField(field) }
    }

    /// Writes one field with its line end.
    package mutating func writeField(_ field: HTTPField) {
        var name = field.name.rawName
        name.withUTF8 { name in
            field.withUnsafeBytesOfValue { value in
                let size = name.count + value.count + 4
                // One write: each has some hundred instructions of its own.
                _ = writeWithUnsafeMutableBytes(minimumWritableBytes: size) { room in
                    room.copyMemory(from: UnsafeRawBufferPointer(name))
                    room[name.count] = UInt8(ascii: ":")
                    room[name.count + 1] = UInt8(ascii: " ")
                    UnsafeMutableRawBufferPointer(rebasing: room[(name.count + 2)...])
                        .copyMemory(from: UnsafeRawBufferPointer(value))
                    room[size - 2] = 13
                    room[size - 1] = 10
                    return size
                }
            }
        }
    }

    /// Writes a field whose value is a number; the name comes with its colon and blank.
    package mutating func writeField(_ name: StaticString, _ value: Int) {
        writeStaticString(name)
        writeDecimal(value)
        writeStaticString("\r\n")
    }

    /// Writes what tells the client whether the connection stays open, where that is not the default.
    package mutating func writeConnection(keepAlive: Bool, isHTTP11: Bool) {
        if !keepAlive {
            writeStaticString("Connection: close\r\n")
        } else if !isHTTP11 {
            writeStaticString("Connection: keep-alive\r\n")
        }
    }

    /// Writes a number in decimal digits without making a text of it.
    package mutating func writeDecimal(_ value: Int) {
        if value < 0 { writeInteger(UInt8(ascii: "-")) }
        var rest = value.magnitude
        withUnsafeTemporaryAllocation(of: UInt8.self, capacity: 20) { digits in
            var at = 20
            repeat {
                at -= 1
                digits[at] = UInt8(truncatingIfNeeded: 48 + rest % 10)
                rest /= 10
            } while rest > 0
            _ = writeBytes(UnsafeRawBufferPointer(digits[at...]))
        }
    }

    /// Writes a chunk whose bytes are few enough to be copied.
    package mutating func writeChunk(_ bytes: ByteBuffer) {
        writeChunkSize(bytes.readableBytes)
        writeImmutableBuffer(bytes)
        writeStaticString("\r\n")
    }

    /// Writes the line before a chunk.
    package mutating func writeChunkSize(_ size: Int) {
        writeString(String(size, radix: 16))
        writeStaticString("\r\n")
    }
}

extension UnsafeRawBufferPointer {
    /// The bytes of a part of an array of bytes.
    fileprivate init(_ slice: Slice<UnsafeMutableBufferPointer<UInt8>>) {
        self.init(UnsafeMutableRawBufferPointer(UnsafeMutableBufferPointer(rebasing: slice)))
    }
}

/// The reason phrase of a status that this server makes itself; empty for others.
private func usualReason(_ status: Int) -> StaticString {
    switch status {
    case 200: "OK"
    case 204: "No Content"
    case 206: "Partial Content"
    case 304: "Not Modified"
    case 400: "Bad Request"
    case 404: "Not Found"
    case 405: "Method Not Allowed"
    case 408: "Request Timeout"
    case 412: "Precondition Failed"
    case 413: "Content Too Large"
    case 414: "URI Too Long"
    case 416: "Range Not Satisfiable"
    case 417: "Expectation Failed"
    case 421: "Misdirected Request"
    case 431: "Request Header Fields Too Large"
    case 500: "Internal Server Error"
    case 501: "Not Implemented"
    case 502: "Bad Gateway"
    case 503: "Service Unavailable"
    case 504: "Gateway Timeout"
    case 505: "HTTP Version Not Supported"
    case 508: "Loop Detected"
    default: ""
    }
}
