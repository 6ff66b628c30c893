/// `compact.lock`, held: whoever rewrites what is in `manifest/` holds it, one at a time over all processes.
///
/// It is an `flock`, so the death of its holder frees it. Never waited for.
final class CompactionLock {
    private let files: any FileSystem
    private let gate: LockGate
    private var file: OpenFile?

    /// - Returns: `nil` if another process, or another store of this one, has it, or the store is suspended.
    init?(_ files: any FileSystem, _ gate: LockGate) throws(FileError) {
        self.files = files
        self.gate = gate
        guard gate.enter() else { return nil }
        defer { if self.file == nil { gate.leave() } }
        let file = try files.open("compact.lock", .appendCreating)
        do throws(FileError) {
            guard try files.tryLock(file) else {
                files.close(file)
                return nil
            }
        } catch {
            files.close(file)
            throw error
        }
        self.file = file
    }

    deinit { release() }

    func release() {
        guard let file else { return }
        files.unlock(file)
        files.close(file)
        self.file = nil
        gate.leave()
    }
}
