import Foundation

/// Python programs of the package, where there is a Python that has what they import.
enum Python {
    struct Failure: Error { let words: String }

    /// Runs a program with an input.
    ///
    /// - Returns: What it printed; `nil`, with a word about it, where Python or a module is missing.
    static func run(_ script: String, input: Data, needs module: String) throws -> Data? {
        let python = ProcessInfo.processInfo.environment["TILE_TEST_PYTHON"] ?? "python3"
        guard try launch([python, "-c", "import \(module)"], Data()).status == 0 else {
            print("skipped: \(python) does not import \(module); `make check-s3` sets up one that does")
            return nil
        }
        let path = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent().appendingPathComponent("Scripts/\(script)").path
        let result = try launch([python, path], input)
        guard result.status == 0 else { throw Failure(words: "\(script): \(result.errors)") }
        return result.output
    }

    private static func launch(
        _ arguments: [String], _ input: Data
    ) throws -> (status: Int32, output: Data, errors: String) {
        let folder = FileManager.default.temporaryDirectory.appendingPathComponent("python-\(UUID().uuidString)")
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: folder) }
        // Files, not pipes: nobody has to read one while the other is written.
        let files = ["in", "out", "err"].map { folder.appendingPathComponent($0) }
        try input.write(to: files[0])
        for file in files[1...] { try Data().write(to: file) }
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = arguments
        process.standardInput = try FileHandle(forReadingFrom: files[0])
        process.standardOutput = try FileHandle(forWritingTo: files[1])
        process.standardError = try FileHandle(forWritingTo: files[2])
        try process.run()
        process.waitUntilExit()
        let errors = String(decoding: try Data(contentsOf: files[2]), as: UTF8.self)
        return (process.terminationStatus, try Data(contentsOf: files[1]), errors)
    }
}
