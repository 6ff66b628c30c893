import HTTPCaching
import HTTPTypes
import Testing

@Suite struct ContentCodingsTests {
    /// What a field says, and what is left of it.
    @Test(
        arguments: [
            (nil, nil), ("", nil), ("identity", nil), ("Identity", nil), (" , ,", nil), ("UTF-8", nil), ("utf8", nil),
            ("binary", nil), ("none", nil), ("gzip", "gzip"), ("GZIP", "gzip"), ("x-gzip", "x-gzip"), ("br", "br"),
            ("gzip, identity", "gzip"), ("gzip,gzip", "gzip, gzip"), ("utf-8, gzip", "gzip"), ("bogus", "bogus"),
            ("\"gzip\"", "gzip"),
        ] as [(String?, String?)])
    func whatIsNoCodingIsLeftOut(value: String?, expected: String?) {
        var fields = HTTPFields()
        fields[.contentEncoding] = value
        #expect(ContentCodings.value(in: fields) == expected)
    }

    @Test func nothingIsBothACodingAndNone() {
        #expect(ContentCodings.registered.isDisjoint(with: ContentCodings.meaningless))
    }
}
