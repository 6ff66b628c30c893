package import TileStore

#if canImport(FoundationEssentials)
package import FoundationEssentials
#else
package import Foundation
#endif

/// What a step gave back, by the store or by the model.
package enum Outcome: Equatable, Sendable {
    case nothing
    case put([PutOutcome])
    case tile(TileEntry?, Data?)
    case flag(Bool)
    case removal(RemovalReport)
    case count(Int)
}

/// Where a bench's cache lies.
package enum BenchPlace: Sendable {
    case simulated(SimulatedDisk)
    /// A folder on the real disk; it must be empty or absent.
    case folder(String)
}

/// One cache, up to two stores on it, and the model of what they should do.
package final class StoreBench {
    /// One store with what belongs to it alone.
    package struct Process {
        package var store: TileStore
        package var files: SimulatedFileSystem?
        package var uses = StoreModel.Uses()
        package var compaction: Compaction?
        package var image: IndexImageWriter?
        /// Bodies that are being written, by number.
        var bodies: [UInt8: BegunBody] = [:]
        var isCompacting: Bool { compaction != nil || image != nil }
        /// From where in the history the store's view may be.
        var viewSince = 0
    }

    /// A body that is being written.
    struct BegunBody {
        let writer: BodyWriter
        let payload: Data
        let memory: Int
        var appended = 0
        /// Whether it was stored or given up by the last step.
        var isOver = false
        var isInFile: Bool { !isOver && appended > memory }
    }

    package let clock: ManualClock
    package let place: BenchPlace
    package let setting: ScriptSetting
    package var model: StoreModel
    package var processes: [Process?] = [nil, nil]
    package var current = 0
    /// A store that may only read, if one is open.
    var reader: (store: TileStore, files: SimulatedFileSystem?)?
    var seed: UInt64 = 1000
    var history: [StoreModel] = []
    var bootID = "boot-1"
    /// The threads that steps may be done on besides the script's own, and the one in use.
    var lanes: [Int: Lane] = [:]
    var lane = 0
    /// What went wrong where nobody could throw it.
    var hiddenFailure: String?

    /// Makes a new cache.
    package init(
        place: BenchPlace, clock: ManualClock, setting: ScriptSetting, model: StoreModel? = nil,
        bootID: String = "boot-1"
    ) throws {
        self.place = place
        self.clock = clock
        self.setting = setting
        self.bootID = bootID
        let blockSize =
            switch place {
            case .simulated(let disk): disk.blockSize
            case .folder(let path): DiskFileSystem(location: path).blockSize
            }
        self.model = model ?? StoreModel(limits: StoreLimits(capacity: nil), blockSize: blockSize)
        processes[0] = try openProcess()
        if model == nil, let store = processes[0]?.store {
            self.model = StoreModel(limits: try store.limits(), blockSize: blockSize)
        }
    }

    /// The files of a new process.
    package func makeFiles() -> any FileSystem {
        switch place {
        case .simulated(let disk): SimulatedFileSystem(disk)
        case .folder(let path): DiskFileSystem(location: path)
        }
    }

    package func configuration() -> StoreConfiguration {
        var configuration = StoreConfiguration()
        let isDurable = setting.mixed && current == 1 ? !setting.durable : setting.durable
        configuration.durability = isDurable ? .durable : .relaxed
        configuration.digestCheck = setting.memoryTier ? .first : .always
        configuration.memoryTierBytes = setting.memoryTier ? 1500 : 0
        configuration.indexImages = setting.images ? .always : .never
        return configuration
    }

    package func open(
        _ files: any FileSystem, readOnly: Bool = false, limits: (capacity: Int?, entryLimit: Int?) = (nil, nil)
    ) throws -> TileStore {
        seed += 1
        var configuration = configuration()
        configuration.readOnly = readOnly
        (configuration.capacity, configuration.entryLimit) = limits
        return try TileStore(
            environment: clock.environment(files, seed: seed, bootID: bootID), configuration: configuration)
    }

    func openProcess(limits: (capacity: Int?, entryLimit: Int?) = (nil, nil)) throws -> Process {
        let files = makeFiles()
        var process = Process(store: try open(files, limits: limits), files: files as? SimulatedFileSystem)
        process.viewSince = history.count
        return process
    }

    package var store: TileStore {
        get throws {
            if let process = processes[current] { return process.store }
            let process = try openProcess()
            processes[current] = process
            return process.store
        }
    }

    package var uses: StoreModel.Uses {
        get { processes[current]?.uses ?? StoreModel.Uses() }
        set { processes[current]?.uses = newValue }
    }
}

/// What two snapshots differ in, or `nil`.
package func difference(_ mine: StoreSnapshot, _ theirs: StoreSnapshot) -> String? {
    if mine == theirs { return nil }
    if mine.limits != theirs.limits { return "limits \(mine.limits), the model has \(theirs.limits)" }
    if mine.regions != theirs.regions { return "regions \(mine.regions), the model has \(theirs.regions)" }
    var lines: [String] = []
    let (a, b) = (
        Dictionary(mine.entries.map { ($0.key, $0) }) { x, _ in x },
        Dictionary(theirs.entries.map { ($0.key, $0) }) { x, _ in x }
    )
    for key in Set(a.keys).union(b.keys).sorted() where a[key] != b[key] {
        lines.append("\(key): \(a[key].map { "\($0)" } ?? "absent") / model \(b[key].map { "\($0)" } ?? "absent")")
    }
    let (p, q) = (
        Dictionary(mine.blobs.map { ($0.digest, $0) }) { x, _ in x },
        Dictionary(theirs.blobs.map { ($0.digest, $0) }) { x, _ in x }
    )
    for digest in Set(p.keys).union(q.keys).sorted() where p[digest] != q[digest] {
        lines.append("\(p[digest].map { "\($0)" } ?? "absent") / model \(q[digest].map { "\($0)" } ?? "absent")")
    }
    if mine.nextSequence != theirs.nextSequence {
        lines.append("nextSequence \(mine.nextSequence) / model \(theirs.nextSequence)")
    }
    return lines.isEmpty ? "the order of entries or blobs" : lines.prefix(6).joined(separator: "; ")
}

/// Runs a script on a store and on the model; returns the first thing they disagree on.
package func replay(_ steps: [Step], setting: ScriptSetting, folder: String? = nil) -> String? {
    let clock = ManualClock()
    var at = -1
    do {
        let place: BenchPlace = folder.map { .folder($0) } ?? .simulated(SimulatedDisk(clock: clock, blockSize: 64))
        let bench = try StoreBench(place: place, clock: clock, setting: setting)
        defer { bench.finish() }
        for (index, step) in steps.enumerated() {
            at = index
            if let difference = try bench.apply(step) { return "step \(index), \(step): \(difference)" }
            clock.advance(nanoseconds: 3_000_000)
            switch step {
            case .use, .glance, .follow: continue
            default: break
            }
            if let difference = try bench.check(thoroughly: index % 16 == 15 || index == steps.count - 1) {
                return "after step \(index), \(step): \(difference)"
            }
        }
        return nil
    } catch {
        return "step \(at)\(at >= 0 ? ", \(steps[at])" : ""): threw \(error)"
    }
}
