/// The files of large blobs that somebody is reading, so that all who read one blob share one open file.
///
/// It keeps no file open: a blob has a place here for as long as it has a reader, and the last reader closes the file.
final class OpenBlobs: Sendable {
    // A class: a copy of an optional value with a weak reference crashes (Swift 6.3).
    private final class Place {
        private(set) weak var file: BlobFile?
        let id: ObjectIdentifier

        init(_ file: BlobFile) { (self.file, id) = (file, ObjectIdentifier(file)) }
    }

    /// Smaller blobs are read whole and closed at once; sharing them would cost more than it saves.
    static let leastBytes = 64 << 10

    private let places = Locked<[BlobDigest: Place]>([:])

    /// The open file of a blob, if somebody reads it.
    func file(_ digest: BlobDigest) -> BlobFile? { places.withLock { $0[digest]?.file } }

    /// Lets others share a file.
    ///
    /// - Returns: The file to read from: another one where that is shared already.
    func share(_ file: BlobFile, _ digest: BlobDigest) -> BlobFile {
        guard file.size >= Self.leastBytes else { return file }
        let shared = places.withLock { places -> BlobFile in
            if let other = places[digest]?.file { return other }
            places[digest] = Place(file)
            return file
        }
        if shared === file { file.whenClosed { [weak self] in self?.closed(digest, $0) } }
        return shared
    }

    /// Has the next reader open the file anew; those who read it now are not disturbed.
    func forget(_ digest: BlobDigest) { places.withLock { _ = $0.removeValue(forKey: digest) } }

    private func closed(_ digest: BlobDigest, _ id: ObjectIdentifier) {
        places.withLock { if $0[digest]?.id == id { $0[digest] = nil } }
    }

    /// How many files are shared.
    var count: Int { places.withLock { $0.count } }
}
