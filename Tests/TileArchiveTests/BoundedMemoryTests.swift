import ContentCoding
import Foundation
import Testing
import TileArchive
import TileStoreTesting

/// What lets a transfer of any size run in little memory, and gzip.
@Suite(.timeLimit(.minutes(60)), .ownCores)
struct BoundedMemoryTests {
    struct Record: Comparable, BitwiseCopyable {
        var key: UInt64
        var payload: UInt64
        static func < (a: Record, b: Record) -> Bool { (a.key, a.payload) < (b.key, b.payload) }
    }

    @Test(arguments: [0, 1, 5, 64, 65, 1000, 20_000])
    func recordsAreSortedWhetherOrNotTheyFit(count: Int) throws {
        var random = SplitMix64(seed: UInt64(count))
        let sorter = RecordSorter<Record>(memory: 64 * 16)
        var records: [Record] = []
        for i in 0..<count {
            let record = Record(key: UInt64(random.below(max(1, count / 3))), payload: UInt64(i))
            records.append(record)
            try sorter.add(record)
        }
        var sorted: [Record] = []
        try sorter.forEach { sorted.append($0) }
        #expect(sorted == records.sorted())
        #expect(sorter.count == count)
    }

    @Test func contentsAreFoundInMemoryAndInAFile() throws {
        var table = try ContentTable(count: 100, inMemory: 10)
        for number in stride(from: UInt64(0), to: 100, by: 3) {
            try table.set(number, .init(position: number * 7, length: number + 1))
        }
        for number in UInt64(0)..<100 {
            let place = try table.place(of: number)
            #expect(place?.position == (number.isMultiple(of: 3) ? number * 7 : nil))
            #expect(place?.length == (number.isMultiple(of: 3) ? number + 1 : nil))
        }
    }

    @Test(arguments: [0, 1, 100, 100_000])
    func gzipComesBack(count: Int) throws {
        let data = Data((0..<count).map { UInt8($0 / 3 & 255) })
        let packed = try Gzip.encode(data)
        #expect(try Gzip.encode(data) == packed)
        #expect(Gzip.decode(packed, limit: count) == data)
        #expect(Gzip.decode(packed + packed, limit: 2 * count) == data + data)
        #expect(Gzip.decode(packed + Data([0]), limit: count) == nil)
        #expect(Gzip.decode(packed.dropLast(), limit: count) == nil)
        if count > 0 { #expect(Gzip.decode(packed, limit: count - 1) == nil) }
        var wrong = packed
        wrong[wrong.count - 6] ^= 1
        #expect(Gzip.decode(wrong, limit: count) == nil)
    }

    @Test func aBombIsStoppedAtItsLimit() throws {
        let bomb = try Gzip.encode(Data(count: 50 << 20))
        #expect(Gzip.decode(bomb, limit: 1 << 20) == nil)
    }

    @Test(arguments: [
        "null", "[]", "{}", #"{"a":[1,2.50,-0.1e+9,true,false,null,"x\"\\\n\u0001"],"b":{"c":{}}}"#, "\"é😀\"",
        "[0,-0,10,-0.50,1E+07,2e-3]",
    ])
    func documentsComeBack(_ text: String) {
        #expect(JSON(Data(text.utf8))?.text == text)
    }

    @Test(arguments: [
        "", "{", "[1,]", "{\"a\" 1}", "+1", ".5", "0x1", "inf", "nan", "1e", "--1", "\"\\q\"", "\"\u{1}\"", "[] []",
        "01", "-01", "00", "1.", "1.e5", "-", "-.5", "1e+", "1.5.5", "1e5e5", "1-1",
        "{\"a\":1,}", "tru", "\"\\u12\"", String(repeating: "[", count: 100) + String(repeating: "]", count: 100),
        "[" + String(repeating: "0,", count: 600_000) + "0]",
    ])
    func whatIsNoJSONIsRefused(_ text: String) { #expect(JSON(Data(text.utf8)) == nil) }

    @Test func escapesAreUnderstood() {
        #expect(JSON(Data(#""\u00e9\ud83d\ude00\/\b\ud800""#.utf8))?.string == "é😀/\u{8}\u{FFFD}")
    }
}
