import Dispatch
import Foundation
import Testing
import TileStoreTesting

@testable import TileStore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// A store that is suspended holds no lock, and takes none before it is resumed.
@Suite(.timeLimit(.minutes(60)), .ownThreads)
struct SuspensionTests {
    /// Something that runs on a thread of its own.
    private final class Work<R: Sendable>: Sendable {
        private let result = Locked<Result<R, any Error>?>(nil)
        private let group = DispatchGroup()

        init(_ body: @escaping @Sendable () throws -> R) {
            group.enter()
            let (result, group) = (self.result, self.group)
            let thread = Thread {
                let outcome = Result { try body() }
                result.withLock { $0 = outcome }
                group.leave()
            }
            thread.start()
        }

        var isOver: Bool { result.withLock { $0 != nil } }

        func outcome() throws -> R {
            group.wait()
            guard let outcome = result.withLock({ $0 }) else { throw CancellationError() }
            return try outcome.get()
        }
    }

    private func until(_ holds: () -> Bool) { while !holds() { sched_yield() } }

    private func isLocked(_ error: any Error) -> Bool { (error as? StoreError)?.code == .locked }

    @Test func itWaitsForThoseWhoHoldTheLock() throws {
        let lab = try Lab()
        let store = lab.store
        let (entered, leave) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let holder = Work {
            try store.hold { _ in
                entered.signal()
                leave.wait()
            }
        }
        entered.wait()
        let suspension = Work { store.suspend() }
        until { store.gate.isShut }
        for _ in 0..<1000 { sched_yield() }
        #expect(!suspension.isOver, "the lock is held still")
        leave.signal()
        try suspension.outcome()
        try holder.outcome()
        let other = try lab.another()
        try other.put(lab.bytes(1), for: lab.key(1), metadata: lab.metadata())
        store.resume()
        #expect(try store.read(lab.key(1))?.data == lab.bytes(1))
    }

    @Test func aCompactionIsGivenUpAndMadeLater() throws {
        let lab = try Lab()
        let store = lab.store
        try lab.put(0..<3000)
        let other = try lab.another()
        var compaction = try store.beginCompaction()
        #expect(try compaction?.step(entries: 10) == true)
        #expect(try other.beginCompaction() == nil)
        let suspension = Work { store.suspend() }
        until { store.gate.isShut }
        #expect(try compaction?.finish() == nil)
        // Its end gives the lock back.
        compaction = nil
        try suspension.outcome()
        // Another process may make one now, and this store none.
        #expect(try other.compact().entries == 3000)
        #expect { try store.compact() } throws: { isLocked($0) }
        #expect(try store.beginCompaction() == nil)
        store.resume()
        #expect(try store.compact().entries == 3000)
        #expect(try store.read(lab.key(2999))?.data == lab.bytes(2999))
    }

    /// Its last steps need the other lock too: a suspension that is waiting must not keep them from it.
    @Test func aCompactionThatIsNearlyDoneComesToItsEnd() throws {
        let lab = try Lab()
        let store = lab.store
        try lab.put(0..<10)
        let lock = try #require(try CompactionLock(lab.files, store.gate))
        let suspension = Work { store.suspend() }
        until { store.gate.isShut }
        try store.hold(within: lock) { _ in }
        #expect(!suspension.isOver)
        lock.release()
        try suspension.outcome()
    }

    @Test func anIndexImageIsGivenUp() throws {
        var configuration = Lab.plain
        configuration.indexImages = .always
        let lab = try Lab(configuration)
        let store = lab.store
        try lab.put(0..<3000)
        let writer = try #require(try store.beginIndexImage())
        let suspension = Work { store.suspend() }
        until { store.gate.isShut }
        #expect(try !writer.finish())
        try suspension.outcome()
        #expect(try lab.another().writeIndexImage())
    }

    @Test func aPutWaitsAndGoesOnWhenItIsResumed() throws {
        let folder = TemporaryFolder()
        var configuration = StoreConfiguration()
        configuration.lockWait = 3600
        let (store, other) = (
            try TileStore(at: folder.path, configuration: configuration), try TileStore(at: folder.path)
        )
        let keys = try (0..<4).map { try TileKey(source: "lab", z: 3, x: $0, y: 1) }
        let metadata = TileMetadata(storedAt: Timestamp(seconds: 1), expires: .distantFuture)
        try store.put(Data([1]), for: keys[0], metadata: metadata)
        store.suspend()
        store.suspend()
        let put = Work { try store.put(Data([2]), for: keys[1], metadata: metadata) }
        try other.put(Data([3]), for: keys[2], metadata: metadata)
        // Reading needs no lock, and neither does seeing what others write.
        #expect(try store.read(keys[0])?.data == Data([1]))
        #expect(!put.isOver)
        store.resume()
        _ = try put.outcome()
        for (key, byte) in zip(keys, [1, 2, 3] as [UInt8]) { #expect(try other.read(key)?.data == Data([byte])) }
        try store.put(Data([4]), for: keys[3], metadata: metadata)
        store.resume()
        try store.close()
        try other.close()
    }

    /// By `flock` itself, while threads put as fast as they can.
    @Test func anybodyCanHaveTheLocksBetweenSuspendingAndResuming() throws {
        let folder = TemporaryFolder()
        var configuration = StoreConfiguration()
        configuration.lockWait = 3600
        configuration.entryLimit = 50
        let store = try TileStore(at: folder.path, configuration: configuration)
        let (isDone, stored) = (Locked(false), Locked(0))
        let writers = (0..<3).map { writer in
            Work {
                var puts = 0
                while !isDone.withLock({ $0 }) {
                    let key = try TileKey(source: "lab", z: 9, x: puts % 500, y: writer)
                    try store.put(
                        Data("\(writer) \(puts)".utf8), for: key,
                        metadata: TileMetadata(storedAt: Timestamp(seconds: 1), expires: .distantFuture))
                    puts += 1
                    stored.withLock { $0 += 1 }
                }
            }
        }
        let compactor = Work {
            while !isDone.withLock({ $0 }) {
                do { _ = try store.compact() } catch let error as StoreError
                    where error.code == .locked || error.code == .busy
                {
                    sched_yield()
                }
            }
        }
        for _ in 0..<60 {
            store.suspend()
            for name in ["lock", "compact.lock"] {
                let file = open(folder.path + "/" + name, O_RDWR | O_CREAT | O_CLOEXEC, 0o666)
                #expect(file >= 0)
                #expect(flock(file, LOCK_EX | LOCK_NB) == 0, "\(name) is held")
                close(file)
            }
            let before = stored.withLock { $0 }
            store.resume()
            until { stored.withLock { $0 } > before + 3 }
        }
        isDone.withLock { $0 = true }
        for writer in writers { try writer.outcome() }
        try compactor.outcome()
        try store.close()
        let again = try TileStore(at: folder.path)
        #expect(try again.verify().ok)
        try again.close()
    }

    @Test func whatWaitsTooLongIsToldThatTheStoreIsSuspended() throws {
        let lab = try Lab()
        lab.store.suspend()
        #expect {
            try lab.store.put(lab.bytes(1), for: lab.key(1), metadata: lab.metadata())
        } throws: { error in
            isLocked(error) && (error as? StoreError)?.message.contains("resume()") == true
        }
        lab.store.resume()
        try lab.put(1..<2)
        #expect(try lab.store.read(lab.key(1))?.data == lab.bytes(1))
    }

    /// A put that was waiting when the system stopped the process failed when it went on: hours had passed by the clock.
    @Test func timeForWhichTheProcessIsStoppedIsNotWaited() throws {
        let lab = try Lab()
        let suspended = Locked<TileStore?>(nil)
        let pauses = Locked(0)
        var environment = lab.clock.environment(SimulatedFileSystem(lab.disk), seed: 5)
        let clock = lab.clock
        environment.pause = { _ in
            clock.advance(seconds: 7200)
            let count = pauses.withLock { pauses in
                pauses += 1
                return pauses
            }
            if count == 3 { suspended.withLock { $0 }?.resume() }
        }
        let store = try TileStore(environment: environment, configuration: lab.configuration)
        suspended.withLock { $0 = store }
        store.suspend()
        try store.put(lab.bytes(1), for: lab.key(1), metadata: lab.metadata())
        #expect(pauses.withLock { $0 } == 3)
        suspended.withLock { $0 = nil }
    }

    @Test func aSuspendedStoreIsClosedWithoutALockAndLetsNobodyWait() throws {
        var configuration = Lab.plain
        configuration.lockWait = 3600
        let folder = TemporaryFolder()
        let (store, other) = (
            try TileStore(at: folder.path, configuration: configuration), try TileStore(at: folder.path)
        )
        let key = try TileKey(source: "lab", z: 3, x: 1, y: 1)
        let metadata = TileMetadata(storedAt: Timestamp(seconds: 1), expires: .distantFuture)
        try store.put(Data([1]), for: key, metadata: metadata)
        _ = try store.read(key)
        store.suspend()
        let put = Work { try store.put(Data([2]), for: key, metadata: metadata) }
        // Held by another process for as long as it likes.
        try other.hold { _ in
            try store.close()
            let error = #expect(throws: StoreError.self) { try put.outcome() }
            #expect(error?.code == .closed)
        }
        store.resume()
        #expect(throws: StoreError.self) { try store.put(Data([3]), for: key, metadata: metadata) }
        #expect(try other.read(key)?.data == Data([1]))
        try other.close()
    }
}
