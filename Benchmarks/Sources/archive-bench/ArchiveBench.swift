import Foundation

/// Measures import and export of packages beside their floors, each step in a process of its own.
///
/// `archive-bench FILE.mbtiles [ROUNDS]`
@main
enum ArchiveBench {
    static func main() throws {
        let arguments = CommandLine.arguments
        if arguments.count >= 3, arguments[1] == "step" {
            let result = try Step(rawValue: arguments[2])?.run(Array(arguments.dropFirst(3)))
            var usage = rusage()
            // Kilobytes on Linux, bytes on Apple's systems.
            #if canImport(Darwin)
            getrusage(RUSAGE_SELF, &usage)
            let peak = Double(usage.ru_maxrss) / 1e6
            #else
            getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
            let peak = Double(usage.ru_maxrss) * 1024 / 1e6
            #endif
            print("\(result?.seconds ?? .nan) \(peak) \(result?.bytes ?? 0)")
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
            for name in ["cache", "raw"] where FileManager.default.fileExists(atPath: "\(work)/\(name)") {
                try FileManager.default.removeItem(atPath: "\(work)/\(name)")
            }
            for step in Step.allCases {
                let result = try child(step, work)
                samples[step, default: []].append(result)
                print("round \(round + 1) \(step.rawValue): \(result.seconds) s, \(Int(result.peak)) MB")
            }
        }
        func middle(_ step: Step) -> Double { median(samples[step]?.map(\.seconds) ?? []) }
        func peak(_ step: Step) -> Int { Int(samples[step]?.map(\.peak).max() ?? 0) }
        let floor = median(
            zip(samples[.readRows] ?? [], samples[.createFiles] ?? []).map { $0.seconds + $1.seconds })
        let bytes = Double(samples[.readRows]?.first?.bytes ?? 0)
        func line(_ name: String, _ value: String) { print("\(name): \(value)") }
        func decimal(_ value: Double, _ places: Int = 2) -> String { String(format: "%.\(places)f", value) }
        print("")
        line(
            "import from MBTiles",
            "\(decimal(middle(.importMBTiles))) s, \(decimal(middle(.importMBTiles) / floor))x of reading the rows and "
                + "creating the unique files (\(decimal(floor)) s); peak \(peak(.importMBTiles)) MB")
        for step in [Step.exportPMTiles, .exportMBTiles] {
            line(
                step.rawValue,
                "\(decimal(middle(step))) s, \(decimal(bytes / middle(step) / 1e6, 0)) MB/s of tiles; peak \(peak(step)) MB; "
                    + "file \(samples[step]?.first?.bytes ?? 0) bytes")
        }
        for step in [Step.randomPMTiles, .randomMBTiles] {
            line(step.rawValue, "\(decimal(middle(step) * 1e6)) µs a tile; peak \(peak(step)) MB")
        }
    }

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
        guard process.terminationStatus == 0, numbers.count == 3 else {
            throw CocoaError(.executableLoad, userInfo: [NSLocalizedDescriptionKey: "\(step.rawValue) failed"])
        }
        return Step.Result(seconds: numbers[0], peak: numbers[1], bytes: Int(numbers[2]))
    }
}

/// The middle value.
func median(_ values: [Double]) -> Double {
    let sorted = values.sorted()
    guard !sorted.isEmpty else { return .nan }
    let middle = sorted.count / 2
    return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}
