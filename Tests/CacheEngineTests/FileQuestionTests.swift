import HTTPCaching
import HTTPTypes
import Testing

@testable import CacheEngine

/// What is asked for a part of a file, and which answers are believed: a table.
@Suite(.timeLimit(.minutes(60)))
struct FileQuestionTests {
    private static let now = HTTPDate(seconds: 1_795_000_000)
    private static let monday = "Mon, 23 Nov 2026 10:00:00 GMT"
    private static let tuesday = "Tue, 24 Nov 2026 10:00:00 GMT"

    private static func version(_ tag: String?, _ modified: String? = monday, _ length: Int64 = 5000) -> FileVersion {
        FileVersion(tag: tag, lastModified: modified.flatMap { HTTPDate(parsing: $0, now: now) }, length: length)
    }

    private static func pinned(_ version: FileVersion) -> FileQuestion {
        FileQuestion(1000..<1100, of: version, mark: "v", isRepeated: false)
    }

    private static func part(
        _ range: String, tag: String? = nil, modified: String? = nil, _ more: HTTPFields = [:], status: Int = 206
    ) -> HTTPResponse {
        var fields = more
        fields[.contentRange] = range
        fields[.eTag] = tag
        fields[.lastModified] = modified
        return HTTPResponse(status: .init(code: status), headerFields: fields)
    }

    private static func word(_ question: FileQuestion, _ answer: HTTPResponse) -> String {
        switch question.verdict(on: answer, at: now) {
        case .part(let version): "part of \(version.length)"
        case .whole: "whole"
        case .otherVersion: "another"
        case .refused: "refused"
        case .other: "other"
        }
    }

    @Test func fieldsSayWhichVersion() {
        let strong = Self.pinned(Self.version("\"a\"")).fields(isKnown: true)
        #expect(strong[.range] == "bytes=1000-1099" && strong[.acceptEncoding] == "identity")
        #expect(strong[.ifMatch] == "\"a\"" && strong[.ifUnmodifiedSince] == nil && strong[.ifRange] == nil)
        let weak = Self.pinned(Self.version("W/\"a\"")).fields(isKnown: true)
        #expect(weak[.ifMatch] == nil && weak[.ifUnmodifiedSince] == Self.monday)
        let first = FileQuestion(first: 16_384).fields(isKnown: false)
        #expect(first[.range] == "bytes=0-16383" && first[.ifMatch] == nil && first[.ifUnmodifiedSince] == nil)
        // Caches on the way may have another one than the server.
        #expect(first[.cacheControl] == "no-cache")
        #expect(FileQuestion(first: 16_384).fields(isKnown: true)[.cacheControl] == nil)
    }

    @Test func aBeginningIsTakenIfItsVersionIsTold() {
        let question = FileQuestion(first: 16_384)
        func word(_ answer: HTTPResponse) -> String { Self.word(question, answer) }
        #expect(word(Self.part("bytes 0-16383/20000", tag: "\"a\"")) == "part of 20000")
        #expect(word(Self.part("bytes 0-499/500", modified: Self.monday)) == "part of 500")
        #expect(word(Self.part("bytes 0-499/500", tag: "W/\"a\"", modified: Self.monday)) == "part of 500")
        #expect(word(Self.part("bytes 0-499/500")) == "refused")
        #expect(word(Self.part("bytes 0-499/500", tag: "W/\"a\"")) == "refused")
        #expect(word(Self.part("bytes 0-499/500", tag: "unquoted")) == "refused")
        #expect(word(Self.part("bytes 0-499/20000", tag: "\"a\"")) == "refused", "less than there is")
        #expect(word(Self.part("bytes 1-16384/20000", tag: "\"a\"")) == "refused")
        #expect(word(Self.part("bytes 0-16383/*", tag: "\"a\"")) == "refused")
        #expect(word(Self.part("bytes 0-16383/20000", tag: "\"a\"", status: 200)) == "refused")
        for status in [301, 304, 404, 412, 416, 429, 500] { #expect(word(Self.part("", status: status)) == "other") }
    }

    @Test func aPartIsOfItsVersionOrOfAnother() {
        let strong = Self.pinned(Self.version("\"a\""))
        func word(_ answer: HTTPResponse) -> String { Self.word(strong, answer) }
        let right = "bytes 1000-1099/5000"
        #expect(word(Self.part(right, tag: "\"a\"")) == "part of 5000")
        #expect(word(Self.part(right, tag: "\"a\"", modified: Self.tuesday)) == "part of 5000", "copies have two times")
        #expect(word(Self.part(right, tag: "\"b\"")) == "another")
        #expect(word(Self.part(right, tag: "W/\"a\"")) == "another")
        #expect(word(Self.part(right, modified: Self.monday)) == "another", "it does not say which")
        #expect(word(Self.part("bytes 1000-1099/5001", tag: "\"a\"")) == "another")
        #expect(word(Self.part("bytes 1000-1049/1050", tag: "\"b\"")) == "another")
        #expect(word(Self.part("bytes 1000-1098/5000", tag: "\"a\"")) == "refused")
        #expect(word(Self.part("bytes 999-1098/5000", tag: "\"a\"")) == "refused")
        #expect(word(Self.part("", tag: "\"a\"")) == "refused")
        #expect(word(Self.part(right, tag: "\"a\"", [.contentEncoding: "gzip"])) == "refused")
        #expect(word(Self.part(right, tag: "\"a\"", [.contentEncoding: "identity"])) == "part of 5000")
        #expect(word(Self.part(right, tag: "\"a\"", [.contentLength: "99"])) == "refused")
        #expect(
            word(Self.part(right, tag: "\"a\"", [.contentType: "Multipart/ByteRanges; boundary=x"])) == "refused")
        for status in [200, 203, 412, 416] {
            #expect(word(Self.part("", tag: "\"b\"", status: status)) == "another", "\(status)")
        }
        for status in [301, 304, 404, 500] { #expect(word(Self.part("", status: status)) == "other") }
    }

    @Test func withoutAStrongTagAllHasToBeTheSame() {
        let right = "bytes 1000-1099/5000"
        let weak = Self.pinned(Self.version("W/\"a\""))
        #expect(Self.word(weak, Self.part(right, tag: "W/\"a\"", modified: Self.monday)) == "part of 5000")
        #expect(Self.word(weak, Self.part(right, tag: "W/\"a\"", modified: Self.tuesday)) == "another")
        #expect(Self.word(weak, Self.part(right, tag: "W/\"b\"", modified: Self.monday)) == "another")
        #expect(Self.word(weak, Self.part(right, tag: "W/\"a\"")) == "another")
        let dated = Self.pinned(Self.version(nil))
        #expect(Self.word(dated, Self.part(right, modified: Self.monday)) == "part of 5000")
        #expect(Self.word(dated, Self.part(right, tag: "\"a\"", modified: Self.monday)) == "another")
        #expect(Self.word(dated, Self.part(right, modified: Self.tuesday)) == "another")
    }

    @Test func aWholeFileIsAskedForWithoutARange() {
        let object = FileQuestion(object: 100, isRepeated: false)
        #expect(
            object.fields(isKnown: false)[.range] == nil && object.fields(isKnown: false)[.acceptEncoding] == "identity"
        )
        #expect(object.isFixed && object.mostBytes == 100)
        for status in [200, 203] { #expect(Self.word(object, Self.part("", status: status)) == "whole") }
        for status in [404, 410] { #expect(Self.word(object, Self.part("", status: status)) == "another") }
        for status in [204, 206, 301, 304, 403, 412, 416, 500] {
            #expect(Self.word(object, Self.part("", status: status)) == "other")
        }
        let document = FileQuestion(document: 100)
        let fields = document.fields(isKnown: true)
        #expect(fields[.range] == nil && fields[.cacheControl] == "no-cache" && !document.isFixed)
        #expect(Self.word(document, Self.part("", status: 200)) == "whole")
        for status in [204, 206, 304, 404, 410, 412, 500] {
            #expect(Self.word(document, Self.part("", status: status)) == "other")
        }
        // What a server says of a file that never changes is about its own copy.
        let answer = Self.part("", tag: "\"a\"", modified: Self.monday, [.contentEncoding: "gzip"], status: 203)
        #expect(object.whole(answer).headerFields.isEmpty && object.whole(answer).status == .ok)
        #expect(document.whole(answer).headerFields[.eTag] == "\"a\"")
    }
}
