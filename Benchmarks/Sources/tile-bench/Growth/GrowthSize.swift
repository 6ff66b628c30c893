import ArgumentParser
import Foundation
import TileStore

/// Measures one size of cache in a process of its own: what an earlier size left in memory would hide what this one needs.
///
/// Prints the figures as JSON.
struct GrowthSize: ParsableCommand {
    static let configuration = CommandConfiguration(commandName: "growth-size", shouldDisplay: false)

    @Argument var folder: String
    @Option var entries: Int
    @Option var blobBytes: Int
    @Option var steps: [GrowthStep] = []
    @Flag var quick = false

    func run() throws {
        let cache = try GrowthCache(at: folder + "/cache", entries: entries, blobBytes: blobBytes)
        let run = GrowthRun(cache: cache, scratch: folder, quick: quick)
        var figures: [Figure] = []
        for step in GrowthStep.allCases where steps.isEmpty || steps.contains(step) {
            // What is there from an earlier run with --keep is measured as it is.
            if step == .build, FileManager.default.fileExists(atPath: cache.path) { continue }
            run.progress("\(step.rawValue) …")
            var found: [Figure] = []
            let time = try seconds { found = try run.figures(of: step) }
            for figure in found {
                run.progress("  \(figure.what): \(Table.format(figure.ours, figure.unit))")
            }
            run.progress("  \(step.rawValue) took \(Int(time)) s")
            figures += found
        }
        for index in figures.indices { figures[index].entries = entries }
        FileHandle.standardOutput.write(try JSONEncoder().encode(figures))
    }
}

/// What is measured of each size, in this order: what deletes comes last.
enum GrowthStep: String, CaseIterable, ExpressibleByArgument {
    case build
    case compaction
    case open
    case hits
    case catchUp = "catch-up"
    case puts
    case verify
    case evict
}

/// One size's measurements.
struct GrowthRun {
    let cache: GrowthCache
    /// A folder beside the cache.
    let scratch: String
    let quick: Bool

    /// Fewer rounds where one takes long.
    var rounds: Int { quick ? 1 : cache.entries > 2_000_000 ? 3 : 5 }

    func progress(_ text: String) {
        FileHandle.standardError.write(Data("\(cache.entries): \(text)\n".utf8))
    }

    func figures(of step: GrowthStep) throws -> [Figure] {
        switch step {
        case .build: try build()
        case .compaction: try compaction()
        case .open: try open()
        case .hits: try hits()
        case .catchUp: try catchUp()
        case .puts: try puts()
        case .verify: try verify()
        case .evict: try evict()
        }
    }

    private func build() throws -> [Figure] {
        let time = try cache.build(progress: progress)
        settle()
        return [
            Figure(
                row: "growth-build", what: "filling, batches of 4,096, a fifth new blobs", unit: .perSecond,
                ours: Double(cache.entries) / time)
        ]
    }
}
