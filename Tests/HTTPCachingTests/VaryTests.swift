import HTTPCaching
import HTTPTypes
import Testing

@Suite(.timeLimit(.minutes(60)))
struct VaryTests {
    @Test(
        arguments: [
            ([], [] as [String]?), ([""], []), (["Foo"], ["foo"]), (["foo, Bar"], ["bar", "foo"]),
            (["Foo", "bar", "FOO"], ["bar", "foo"]), ([",, Foo ,"], ["foo"]), (["*"], nil), (["*, *"], nil),
            (["", "*"], nil), ([", *"], nil), (["Foo, *"], nil), (["*, Foo"], nil), (["Foo Bar"], nil),
            (["Foo;Bar"], nil),
            ([(0..<65).map { "f\($0)" }.joined(separator: ",")], nil),
        ] as [([String], [String]?)])
    func aVaryIsRead(lines: [String], names: [String]?) {
        let found = Vary(fields(lines.map { "Vary: " + $0 }))
        switch names {
        case nil: #expect(found == .any)
        case .some(let names):
            let wanted = names.compactMap { HTTPField.Name($0) }
            #expect(found == (wanted.isEmpty ? .none : .fields(wanted)), "9111 §4.1")
        }
    }

    struct Row: CustomTestStringConvertible {
        let vary: String
        let one: [String]
        let other: [String]
        let same: Bool
        let rule: String
        var testDescription: String { "\(rule): \(one) and \(other)" }
    }

    static func row(_ vary: String, _ one: [String], _ other: [String], _ same: Bool, _ rule: String) -> Row {
        Row(vary: vary, one: one, other: other, same: same, rule: rule)
    }

    static let rows = [
        row("Foo", ["Foo: 1"], ["foo: 1"], true, "9111 §4.1 equal"),
        row("Foo", ["Foo: 1"], ["Foo: 2"], false, "9111 §4.1 different"),
        row("Foo", ["Foo: a"], ["Foo: A"], false, "unknown fields keep their case"),
        row("Foo", [], ["Foo: 1"], false, "9111 §4.1 missing"),
        row("Foo", [], ["Foo:"], false, "a missing field is not an empty one"),
        row("Foo", [], [], true, "9111 §4.1 both missing"),
        row("Foo", ["Foo: 1", "Bar: 1"], ["Foo: 1", "Bar: 2"], true, "9111 §4.1 not named"),
        row("Foo, Bar", ["Foo: 1", "Bar: 1"], ["Bar: 1", "Foo: 1"], true, "order of fields"),
        row("Foo, Bar", ["Foo: 1"], ["Bar: 1"], false, "another field"),
        row("Foo", ["Foo:  1 "], ["Foo: 1"], true, "9110 §5.5 blanks"),
        row("Foo", ["Foo: 1,2"], ["Foo: 1, 2"], true, "9110 §5.6.1 blanks in lists"),
        row("Foo", ["Foo: 1", "Foo: 2"], ["Foo: 1, 2"], true, "9110 §5.3 lines combined"),
        row("Foo", ["Foo: 1", "Foo: 2"], ["Foo: 2", "Foo: 1"], false, "9110 §5.3 order of lines"),
        row("Foo", ["Foo: 1,,2"], ["Foo: 1, 2"], true, "9110 §5.6.1.2 empty members"),
        row("Foo", ["Foo: \"1,2\""], ["Foo: \"1, 2\""], false, "quotes keep their blanks"),
        row("User-Agent", ["User-Agent: a,b"], ["User-Agent: a, b"], false, "not a list"),
        row("Accept-Encoding", ["Accept-Encoding: GZip, br"], ["accept-encoding: gzip,br"], true, "9110 §8.4.1 case"),
        row("Accept-Encoding", ["Accept-Encoding: br, gzip"], ["accept-encoding: gzip,br"], true, "9110 §12.4.2 order"),
        row("Accept-Encoding", ["Accept-Encoding: gzip;q=1.0"], ["Accept-Encoding: gzip"], true, "9110 §12.4.2 weight"),
        row("Accept-Encoding", ["Accept-Encoding: a; q=0.50"], ["Accept-Encoding: a;q=0.5"], true, "§12.4.2 weight"),
        row("Accept-Encoding", ["Accept-Encoding: a;q=0.5"], ["Accept-Encoding: a;q=0.05"], false, "§12.4.2 weight"),
        row("Accept-Encoding", ["Accept-Encoding: a;q=0"], ["Accept-Encoding: a"], false, "§12.4.2 not acceptable"),
        row("Accept-Encoding", ["Accept-Encoding:"], [], false, "9110 §12.5.3 empty is not missing"),
        row("Accept-Language", ["Accept-Language: en, de"], ["Accept-Language: De,eN"], true, "9110 §12.5.4"),
        row("Accept", ["Accept: Image/PNG"], ["Accept: image/png"], true, "9110 §8.3.1 case"),
        row("Accept", ["Accept: a/b;c=D"], ["Accept: a/b;c=d"], false, "9110 §5.6.6 values may have case"),
        row("Accept", ["Accept: a/b; c=d"], ["Accept: a/b;c=d"], true, "9110 §5.6.6 blanks"),
        row("Accept", ["Accept: a/b, c/d"], ["Accept: c/d, a/b"], false, "order is kept"),
        row("Cookie", ["Cookie: a=1", "Cookie: b=2"], ["Cookie: a=1; b=2"], true, "9113 §8.2.3"),
    ]

    @Test(arguments: rows)
    func requestsAreComparedByWhatVaryNames(row: Row) {
        let vary = Vary(fields("Vary: " + row.vary))
        let (one, other) = (fields(row.one), fields(row.other))
        #expect(vary.matches(one, other) == row.same)
        #expect(vary.matches(other, one) == row.same)
        #expect((vary.selectionText(for: one) == vary.selectionText(for: other)) == row.same)
        #expect(vary.matches(vary.selectingFields(of: one), other) == row.same, "what is kept suffices")
    }

    @Test func theSelectionTextIsWhatItIs() {
        // Fingerprints on disk are made of it: a change of it loses every stored variant.
        let vary = Vary(fields("Vary: Foo, Accept-Encoding, Bar"))
        let text = vary.selectionText(for: fields("foo: 100% \u{e9}", "Accept-Encoding: gzip, BR;q=0.80"))
        #expect(text == "accept-encoding:br;q=0.8,gzip\nbar\nfoo:100%25 %C3%A9\n")
        #expect(Vary.none.selectionText(for: fields("Foo: 1")) == "")
        #expect(Vary.any.selectionText(for: fields("Foo: 1")) == nil)
        #expect(!Vary.any.matches(fields(), fields()))
        #expect(Vary.none.matches(fields("Foo: 1"), fields()))
    }

    @Test func bytesThatAreNoUTF8AreToldApart() throws {
        let name = try #require(HTTPField.Name("Foo"))
        func with(_ byte: UInt8) -> HTTPFields {
            var fields = HTTPFields()
            fields.append(HTTPField(name: name, value: [byte]))
            return fields
        }
        let vary = Vary.fields([name])
        #expect(!vary.matches(with(0xFC), with(0xFD)))
        #expect(vary.selectionText(for: with(0xFC)) != vary.selectionText(for: with(0xFD)))
    }
}
