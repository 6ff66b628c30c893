/// What an opening would have to read: the newest checkpoint known and the journals after it, less what an image spares.
struct CheckpointChain {
    /// The newest checkpoint known, and its size.
    private(set) var checkpoint: UInt64 = 0
    private(set) var checkpointBytes: Int64 = 0
    /// The bytes of the journals between it and the current one.
    private(set) var passedBytes: Int64 = 0
    /// How far the newest image known is: the journal, and the offset in it.
    private var image: (journal: UInt64, offset: Int64)?

    var hasImage: Bool { image != nil }

    /// Begins at a checkpoint, whoever made it.
    mutating func begin(_ checkpoint: UInt64, bytes: Int64, passed: Int64 = 0) {
        (self.checkpoint, checkpointBytes, passedBytes, image) = (checkpoint, bytes, passed, nil)
    }

    /// A journal of so many bytes was left for the next one.
    mutating func pass(_ bytes: Int64) { passedBytes += bytes }

    /// Another process may have made a checkpoint since: these are its size and the journals after it.
    mutating func measured(bytes: Int64, passed: Int64) { (checkpointBytes, passedBytes) = (bytes, passed) }

    mutating func noteImage(_ position: ImagePosition) { image = (position.journal, Int64(position.offset)) }

    /// Bytes that an opening would have to read, at some place in the current journal.
    func unread(_ journal: Journal) -> Int64 {
        guard let image else { return checkpointBytes + passedBytes + journal.offset }
        // Journals in between are whole in the chain; the part that is in the image as well makes little difference.
        return image.journal == journal.generation ? journal.offset - image.offset : passedBytes + journal.offset
    }
}
