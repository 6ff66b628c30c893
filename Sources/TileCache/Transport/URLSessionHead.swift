import HTTPTypes

#if canImport(FoundationNetworking)
import Foundation
import FoundationNetworking
#else
import Foundation
#endif

/// The head of an answer as URLSession gives it, which has decoded the body by then.
struct URLSessionHead {
    /// Why it is none.
    struct Flaw: Error {
        var code: TransportError.Code
        var message: String
    }

    /// Without the coding and the length of a body that was decoded.
    let head: HTTPResponse
    private let length: Int?

    init(_ response: HTTPURLResponse, limit: Int) throws(Flaw) {
        var fields = HTTPFields()
        var size = 0
        for (name, value) in response.allHeaderFields {
            guard let name = name as? String, let value = value as? String else { continue }
            size += name.utf8.count + value.utf8.count + 4
            guard let name = HTTPField.Name(name) else {
                throw Flaw(code: .malformed, message: "a header field's name is no token")
            }
            fields.append(HTTPField(name: name, value: value))
        }
        guard size <= limit else {
            throw Flaw(code: .headTooLarge, message: "the header fields are \(size) B, above \(limit) B")
        }
        let coding = fields[.contentEncoding]?.lowercased() ?? "identity"
        let isDecoded = ["gzip", "x-gzip", "deflate", "br"].contains(coding)
        length = isDecoded || fields.contains(.transferEncoding) ? nil : fields[.contentLength].flatMap { Int($0) }
        if isDecoded {
            fields[.contentEncoding] = nil
            fields[.contentLength] = nil
        }
        head = HTTPResponse(status: .init(code: response.statusCode), headerFields: fields)
    }

    /// How long the body has to be; `nil` where nothing says so.
    func promised(isHead: Bool) -> Int? {
        isHead || head.status == .noContent || head.status == .notModified ? nil : length
    }
}
