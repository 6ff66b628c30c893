import Foundation
import Testing

/// Outputs that are kept next to the tests; `RECORD=1` writes them anew.
enum Golden {
    private static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent("Golden")

    /// Compares a text with the one that is kept under a name.
    static func check(_ text: String, _ name: String, sourceLocation: SourceLocation = #_sourceLocation) throws {
        let file = folder.appendingPathComponent(name)
        if ProcessInfo.processInfo.environment["RECORD"] == "1" {
            try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
            try text.write(to: file, atomically: true, encoding: .utf8)
            return
        }
        let kept = try String(contentsOf: file, encoding: .utf8)
        #expect(text == kept, "\(name) differs; RECORD=1 writes it anew", sourceLocation: sourceLocation)
    }

    /// Takes out what differs from run to run: paths, present times, sizes that hang on random numbers.
    static func normalized(_ text: String, paths: [String: String]) -> String {
        var text = text
        for (path, name) in paths { text = text.replacingOccurrences(of: path, with: name) }
        let patterns = [
            // Times near the present; those of the sample are in 2020 and 2100.
            (#"202[1-9]-\d\d-\d\dT\d\d:\d\d:\d\dZ"#, "TIME"),
            (#""(manifestBytes|checkpointBytes|journalBytes)":\d+"#, #""$1":N"#),
            (#"Manifest( +)\S+ k?B"#, "Manifest$1N"),
            (#"(checkpoint|journal) \S+ k?B, "#, "$1 N, "),
            (#"(entries|entry), \S+ k?B\.$"#, "$1, N."),
        ]
        for (pattern, replacement) in patterns {
            text = text.replacingOccurrences(of: pattern, with: replacement, options: .regularExpression)
        }
        return text
    }
}
