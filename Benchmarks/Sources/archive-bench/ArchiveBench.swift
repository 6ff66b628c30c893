import Foundation

/// Measures import and export of packages beside their floors, each step in a process of its own.
///
/// `archive-bench FILE.mbtiles [ROUNDS]`
@main
enum ArchiveBench {
    static func main() async throws {
        let arguments = CommandLine.arguments
        if arguments.count >= 3, arguments[1] == "step" {
            let result = try await Step(rawValue: arguments[2])?.run(Array(arguments.dropFirst(3)))
            var usage = rusage()
            // Kilobytes on Linux, bytes on Apple's systems.
            #if canImport(Darwin)
            getrusage(RUSAGE_SELF, &usage)
            let peak = Double(usage.ru_maxrss) / 1e6
            #else
            getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
            let peak = Double(usage.ru_maxrss) * 1024 / 1e6
            #endif
            print("\(result?.seconds ?? .nan) \(peak) \(result?.bytes ?? 0) \(result?.processor ?? .nan)")
            return
        }
        guard arguments.count >= 2 else {
            print("usage: archive-bench FILE.mbtiles [ROUNDS]")
            exit(64)
        }
        try Rounds(file: arguments[1], count: arguments.count > 2 ? Int(arguments[2]) ?? 5 : 5).run()
    }
}

/// Several rounds of all steps, floors and measured ones alternating.
struct Rounds {
    let file: String
    let count: Int

    func run() throws {
        let work = NSTemporaryDirectory() + "/archive-bench-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: work, withIntermediateDirectories: true)
        defer {
            do { try FileManager.default.removeItem(atPath: work) } catch { print("left behind: \(work)") }
        }
        var samples: [Step: [Step.Result]] = [:]
        for round in 0..<count {
            // Folders of its own for each round: ext4 is slow for minutes where many files have just been deleted.
            let folder = "\(work)/\(round)"
            try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
            for step in Step.allCases {
                let result = try child(step, folder)
                samples[step, default: []].append(result)
                print("round \(round + 1) \(step.rawValue): \(result.seconds) s, \(Int(result.peak)) MB")
            }
        }
        report(samples)
    }

    /// Each figure beside what it has to reach, and what that is measured by.
    private func report(_ samples: [Step: [Step.Result]]) {
        func middle(_ step: Step) -> Double { median(samples[step]?.map(\.seconds) ?? []) }
        func bytes(_ step: Step) -> Double { Double(samples[step]?.first?.bytes ?? 0) }
        func line(_ name: String, _ value: Double, _ most: Double, _ unit: String, _ words: String, least: Bool = false)
        {
            let mark = (least ? value >= most : value <= most) ? "ok  " : "MISS"
            let bound = least ? "at least" : "at most"
            print("\(mark) \(name): \(decimal(value)) \(unit) (\(bound) \(decimal(most))); \(words)")
        }
        // Ratios of the same round: what else the machine does changes from minute to minute.
        let floors = zip(samples[.readRows] ?? [], samples[.createFiles] ?? []).map { $0.seconds + $1.seconds }
        let ratios = zip(samples[.importMBTiles] ?? [], floors).map { $0.seconds / $1 }
        print("")
        let read = decimal(middle(.readRows))
        let create = decimal(middle(.createFiles))
        var words =
            "\(decimal(middle(.importMBTiles))) s; floor \(read) s to read the rows and \(create) s to create the "
        words += "unique files; again \(decimal(middle(.importAgain))) s; processor time "
        let processor = { (step: Step) in median(samples[step]?.map(\.processor) ?? []) }
        words += "\(decimal(processor(.importMBTiles))) s, \(decimal(processor(.readRows) + processor(.createFiles))) s"
        line("import from MBTiles", median(ratios), 1.3, "x", words)
        for (step, most) in [(Step.exportPMTiles, 1.02), (.exportMBTiles, .infinity)] {
            let speed = bytes(.readRows) / middle(step) / 1e6
            line("\(step.rawValue)", speed, 60, "MB/s of tiles", "\(decimal(middle(step))) s", least: true)
            let size = bytes(step) / bytes(.createFiles)
            let words = "\(Int(bytes(step))) bytes; contents once have \(Int(bytes(.createFiles)))"
            if most.isFinite {
                line("its size", size, most, "x", words)
            } else {
                print("     its size: \(decimal(size)) x; \(words)")
            }
        }
        for step in [Step.randomPMTiles, .randomMBTiles, .sourcePMTiles, .sourceMBTiles] {
            let processor = median(samples[step]?.map(\.processor) ?? []) * 1e6
            line(
                step.rawValue, middle(step) * 1e6, 15, "µs",
                "median of \(count) means; \(decimal(processor)) µs of processor time")
        }
        for step in [Step.importMBTiles, .importAgain, .exportPMTiles, .exportMBTiles] {
            line(
                "memory of \(step.rawValue)", samples[step]?.map(\.peak).max() ?? .nan, 64, "MB",
                "VmHWM, most of all rounds")
        }
    }

    private func decimal(_ value: Double) -> String { String(format: "%.2f", value) }

    private func child(_ step: Step, _ work: String) throws -> Step.Result {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: CommandLine.arguments[0])
        process.arguments = ["step", step.rawValue, file, work]
        let pipe = Pipe()
        process.standardOutput = pipe
        try process.run()
        let output = pipe.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        let numbers = String(decoding: output, as: UTF8.self).split(whereSeparator: \.isWhitespace).compactMap {
            Double($0)
        }
        guard process.terminationStatus == 0, numbers.count == 4 else {
            throw CocoaError(.executableLoad, userInfo: [NSLocalizedDescriptionKey: "\(step.rawValue) failed"])
        }
        return Step.Result(seconds: numbers[0], peak: numbers[1], bytes: Int(numbers[2]), processor: numbers[3])
    }
}

/// The middle value.
func median(_ values: [Double]) -> Double {
    let sorted = values.sorted()
    guard !sorted.isEmpty else { return .nan }
    let middle = sorted.count / 2
    return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}
