/// The file that is given up when a removal meets a full disk.
final class Reserve {
    static let path = "manifest/reserve"
    static let size = 1 << 20

    private let files: any FileSystem
    /// Whether it was given up, or could not be made, and is still to be made again.
    private var isGone = false

    init(_ files: any FileSystem) { self.files = files }

    /// Makes it, if it is not there.
    ///
    /// That it cannot be made now is no error: the next opening or removal tries again.
    func make() {
        do throws(FileError) {
            if let status = try files.status(at: Self.path), status.size == Int64(Self.size) {
                isGone = false
                return
            }
            try files.unlink(Self.path)
            // Not zeros: a file system may keep those without giving them room.
            try files.createFile(Self.path, bytes: [UInt8](repeating: 0x2E, count: Self.size), sync: false)
            isGone = false
        } catch {
            isGone = true
        }
    }

    func giveUp() throws(FileError) {
        try files.unlink(Self.path)
        isGone = true
    }

    func makeAgain() { if isGone { make() } }
}
