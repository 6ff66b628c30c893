import HTTPCaching
import HTTPTypes
import Testing

/// The time at which all tests take place: Sat, 21 Nov 2026 12:00:00 GMT.
let noon = HTTPDate(seconds: 1_795_262_400)

/// Fields written as on the wire, one line each; a line without a colon is an empty field.
func fields(_ lines: String...) -> HTTPFields { fields(lines) }

func fields(_ lines: [String]) -> HTTPFields {
    var fields = HTTPFields()
    for line in lines {
        let parts = line.split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
        guard let name = HTTPField.Name(String(parts[0])) else {
            Issue.record("no field name: \(line)")
            continue
        }
        var value = parts.count > 1 ? String(parts[1]) : ""
        if value.first == " " { value.removeFirst() }
        fields.append(HTTPField(name: name, value: value))
    }
    return fields
}

func response(_ status: Int = 200, _ lines: String...) -> HTTPResponse {
    HTTPResponse(status: .init(code: status), headerFields: fields(lines))
}

func request(_ method: HTTPRequest.Method = .get, _ lines: String...) -> HTTPRequest {
    HTTPRequest(
        method: method, scheme: "https", authority: "tiles.example", path: "/a", headerFields: fields(lines))
}

extension HTTPDate {
    func plus(_ seconds: Int) -> HTTPDate { adding(seconds: seconds) }
}

extension CachePolicy {
    /// What a response is worth that was asked for and received at noon.
    func atNoon(_ lines: String...) -> Freshness {
        freshness(
            of: HTTPResponse(status: .ok, headerFields: fields(lines)), requestedAt: noon, receivedAt: noon)
    }
}
