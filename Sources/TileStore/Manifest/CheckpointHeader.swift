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
        let tail = ",\"c\":\"xxxxxxxx\",\"records\":[".utf8.count
        let end = line.count - tail
        guard end > 0, line.last == 0x5B, let sum = LineReader.checksum(line, at: end + 6),
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
}
