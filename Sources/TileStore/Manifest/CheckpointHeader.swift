/// The first line of a checkpoint.
struct CheckpointHeader {
    var number: UInt64 = 0
    var sequence: UInt64 = 1
    var nextSet: UInt32 = 1
    var entries = 0
    var blobs = 0

    init() {}

    /// Reads `{"checkpoint":…,"c":"xxxxxxxx","records":[`.
    init?(_ line: UnsafeRawBufferPointer) {
        let (before, after): (StaticString, StaticString) = (",\"c\":\"", "\",\"records\":[")
        let end = line.count - before.utf8CodeUnitCount - 8 - after.utf8CodeUnitCount
        // No checksum covers these, and the file would be no JSON without them.
        guard end > 0, Self.stands(before, in: line, at: end),
            Self.stands(after, in: line, at: line.count - after.utf8CodeUnitCount),
            let sum = LineReader.checksum(line, at: end + before.utf8CodeUnitCount),
            LineChecksum.of(UnsafeRawBufferPointer(rebasing: line[..<end])) == sum,
            let object = (Array(line[..<end]) + [0x7D]).withUnsafeBytes({ JSONValue($0) })?.object
        else { return nil }
        guard let number = object["checkpoint"]?.unsigned, let sequence = object["sequence"]?.unsigned,
            sequence <= Tables.recencyEnd, let nextSet = object["nextSet"]?.unsigned,
            nextSet <= UInt64(TableBounds.sets)
        else { return nil }
        (self.number, self.sequence, self.nextSet) = (number, sequence, UInt32(nextSet))
        // Hints for sizing only: bounded, because they come from outside.
        entries = Int(clamping: min(object["entries"]?.unsigned ?? 0, 1 << 27))
        blobs = Int(clamping: min(object["blobs"]?.unsigned ?? 0, 1 << 27))
    }

    private static func stands(_ text: StaticString, in line: UnsafeRawBufferPointer, at start: Int) -> Bool {
        text.withUTF8Buffer { $0.elementsEqual(line[start..<(start + $0.count)]) }
    }
}
