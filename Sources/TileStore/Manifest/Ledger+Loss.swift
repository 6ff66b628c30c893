// A note that the manifest has lost something, for whoever looks after the cache later.
extension Ledger {
    /// There while a file of the manifest was missing, was made anew, and no repair has been asked for since.
    static var lossPath: String { "manifest/lost" }

    /// Leaves the note.
    ///
    /// Only under the lock, and before the missing file is made anew: a process that is killed between the two loses nothing of it.
    func noteLoss() throws(FileError) {
        // What somebody has put into its place says nothing, and must not keep the cache from being opened: verify names it.
        guard try files.status(at: Self.lossPath) == nil else { return }
        try files.createFile(Self.lossPath, bytes: [], sync: true)
    }

    /// Whether something is lost: by the note, or by what this process met, which only a holder of the lock can note.
    func hasLoss() throws(FileError) -> Bool {
        if journal.lacksWhatItHad, !mustLoad { return true }
        return try isNoted()
    }

    /// Whether the note is there; what else somebody has put into its place says nothing.
    private func isNoted() throws(FileError) -> Bool { try files.status(at: Self.lossPath)?.kind == .file }

    /// Removes the note, under the lock, once what is left was written anew.
    func forgetLoss() throws(FileError) {
        guard try isNoted() else { return }
        try files.unlink(Self.lossPath)
    }
}
