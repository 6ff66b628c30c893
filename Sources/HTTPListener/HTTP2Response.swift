import HTTPTypes
import HTTPWire
import NIOCore
import NIOHPACK

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Makes the fields of HTTP/2 responses.
enum HTTP2Response {
    /// The fields of a response.
    ///
    /// - Parameter length: The body's length, if it is to be said.
    static func fields(_ response: HTTPResponse, length: Int64?) -> HPACKHeaders {
        var fields = HPACKHeaders()
        fields.reserveCapacity(response.headerFields.count + 3)
        fields.add(name: ":status", value: String(response.status.code))
        for field in response.headerFields { add(field, to: &fields) }
        if let length { fields.add(name: "content-length", value: String(length), indexing: .nonIndexable) }
        return fields
    }

    /// The fields behind a body.
    static func trailers(_ trailers: HTTPFields) -> HPACKHeaders {
        var fields = HPACKHeaders()
        for field in trailers { add(field, to: &fields) }
        return fields
    }

    private static func add(_ field: HTTPField, to fields: inout HPACKHeaders) {
        let name = field.name.canonicalName
        guard !field.isFraming, name != "proxy-connection", name != "upgrade", name != "te" else { return }
        fields.add(name: name, value: field.value, indexing: indexing(name))
    }

    /// Values that differ from response to response would only push others out of the client's table.
    private static func indexing(_ name: String) -> HPACKIndexing {
        switch name {
        case "etag", "last-modified", "age", "cache-status", "content-length", "expires", "content-range", "location":
            .nonIndexable
        case "set-cookie": .neverIndexed
        default: .indexable
        }
    }

    /// Takes the head of a response of HTTP/1.1 from the front of a buffer; what is left is its body.
    ///
    /// - Returns: The status and the fields; `nil` if there is no whole head.
    static func takeHead(_ buffer: inout ByteBuffer) -> (status: Int, fields: HPACKHeaders)? {
        var fields = HPACKHeaders()
        fields.reserveCapacity(16)
        var status = 0
        let end = buffer.withUnsafeReadableBytes { bytes -> Int? in
            guard bytes.count > 13, let base = bytes.baseAddress, let code = bytes.part(9, 12).decimal else {
                return nil
            }
            status = code
            fields.add(name: ":status", value: String(code))
            var next = 12
            var isFirst = true
            while next < bytes.count, let found = memchr(base + next, 10, bytes.count - next) {
                let start = next
                let feed = base.distance(to: UnsafeRawPointer(found))
                next = feed + 1
                if isFirst {
                    isFirst = false
                    continue
                }
                guard feed - 1 > start else { return next }
                add(bytes.part(start, feed - 1), to: &fields)
            }
            return nil
        }
        guard let end else { return nil }
        buffer.moveReaderIndex(forwardBy: end)
        return (status, fields)
    }

    /// Adds a line `Name: value`.
    private static func add(_ line: UnsafeRawBufferPointer, to fields: inout HPACKHeaders) {
        guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return }
        let name = String(unsafeUninitializedCapacity: colon) { room in
            for i in 0..<colon { room[i] = line[i].lowercased }
            return colon
        }
        guard name != "connection" else { return }
        let value = String(decoding: line.part(colon + 1, line.count).trimmed, as: UTF8.self)
        fields.add(name: name, value: value, indexing: indexing(name))
    }
}
