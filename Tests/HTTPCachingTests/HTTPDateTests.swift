import HTTPCaching
import Testing

@Suite(.timeLimit(.minutes(1)))
struct HTTPDateTests {
    @Test func aDateIsPrintedAsIMFFixdate() {
        #expect(HTTPDate(seconds: 784_111_777).description == "Sun, 06 Nov 1994 08:49:37 GMT")
    }
}
