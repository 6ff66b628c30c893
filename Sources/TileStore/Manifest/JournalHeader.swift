/// The first line of a journal.
struct JournalHeader {
    var generation: UInt64
    /// The length of the journal before it when it was made, and the checksum of that one's last line.
    var after: Int64
    var previous: UInt32?
    /// Its own length with its line break.
    var length: Int

    /// Reads it; `nil` if the file does not begin with one.
    init?(of file: OpenFile, in files: any FileSystem) throws(FileError) {
        let start = UnsafeMutableRawBufferPointer.allocate(byteCount: 512, alignment: 8)
        defer { start.deallocate() }
        let n = try files.read(file, into: start, at: 0)
        guard let end = start[..<n].firstIndex(of: 0x0A),
            let body = LineReader.body(of: UnsafeRawBufferPointer(rebasing: start[..<end])),
            let object = (Array(body) + [0x7D]).withUnsafeBytes({ JSONValue($0) })?.object,
            let generation = object["journal"]?.unsigned, let after = object["after"]?.integer,
            let previous = object["previous"]?.string
        else { return nil }
        self.generation = generation
        self.after = after
        self.previous = previous.isEmpty ? nil : UInt32(previous, radix: 16)
        length = end + 1
    }
}
