/// A response as it came over the wire.
package struct Answer {
    package var status = 0
    package var fields: [(name: String, value: String)] = []
    package var body: [UInt8] = []
    package var trailers: [(name: String, value: String)] = []
    /// Whether the body came to its end.
    package var isComplete = true
    /// The 1xx responses before it.
    package var interim: [Answer] = []

    package var text: String { String(decoding: body, as: UTF8.self) }

    /// The first value of a field.
    package subscript(_ name: String) -> String? { fields.first { $0.name.lowercased() == name.lowercased() }?.value }

    /// All values of a field.
    package func all(_ name: String) -> [String] {
        fields.filter { $0.name.lowercased() == name.lowercased() }.map(\.value)
    }
}

extension Wire {
    /// Reads a response to a method; `nil` if the connection ends before its head.
    package func answer(to method: String = "GET") -> Answer? {
        var interim: [Answer] = []
        while let head = take(through: "\r\n\r\n") {
            var answer = Answer()
            var lines = head.split(separator: "\r\n").map(String.init)[...]
            answer.status = Int(lines.popFirst()?.split(separator: " ").dropFirst().first ?? "") ?? 0
            answer.fields = lines.map(Self.field)
            if answer.status < 200 {
                interim.append(answer)
                continue
            }
            answer.interim = interim
            if method == "HEAD" || answer.status == 204 || answer.status == 304 { return answer }
            if answer["Transfer-Encoding"] != nil {
                readChunks(&answer)
            } else if let length = answer["Content-Length"].flatMap(Int.init) {
                answer.body = take(length)
                answer.isComplete = answer.body.count == length
            } else {
                answer.body = takeAll()
            }
            return answer
        }
        return nil
    }

    private func readChunks(_ answer: inout Answer) {
        while let line = take(through: "\r\n"), let size = Int(line.dropLast(1), radix: 16) {
            guard size > 0 else {
                while let trailer = take(through: "\r\n"), trailer != "\r\n" {
                    answer.trailers.append(Self.field(String(trailer.dropLast(1))))
                }
                return
            }
            let bytes = take(size)
            answer.body += bytes
            if bytes.count < size || take(2).count < 2 { break }
        }
        answer.isComplete = false
    }

    private static func field(_ line: String) -> (name: String, value: String) {
        let parts = line.split(separator: ":", maxSplits: 1).map(String.init)
        return (parts.first ?? "", String((parts.count > 1 ? parts[1] : "").drop { $0 == " " }))
    }
}
