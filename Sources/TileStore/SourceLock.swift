/// The right to pull into one source, over all processes: `pulls/NAME.lock`, held.
///
/// It is an `flock`, so the death of its holder frees it. It holds up nobody but other pulls.
package final class SourceLock: Sendable {
    private let state: Locked<OpenFile?>
    private let files: any FileSystem

    fileprivate init(_ file: OpenFile, _ files: any FileSystem) {
        state = Locked(file)
        self.files = files
    }

    deinit { release() }

    /// Lets the next one have it.
    package func release() {
        state.withLock { file in
            guard let held = file else { return }
            files.unlock(held)
            files.close(held)
            file = nil
        }
    }
}

extension TileStore {
    /// Takes the right to pull into a source; never waited for.
    ///
    /// - Returns: `nil` where somebody else has it.
    /// - Throws: `StoreError`.
    package func lockPulls(of source: SourceName) throws -> SourceLock? {
        do throws(FileError) {
            try files.makeFolder("pulls")
            let file = try files.open("pulls/\(source).lock", .appendCreating)
            do throws(FileError) {
                if try files.tryLock(file) { return SourceLock(file, files) }
            } catch {
                files.close(file)
                throw error
            }
            files.close(file)
            return nil
        } catch {
            throw StoreError(error, in: files.location)
        }
    }
}
