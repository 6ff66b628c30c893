import Foundation

/// The resident memory of this process, in bytes.
enum Memory {
    static func resident() -> Int { field("VmRSS:") ?? mostEver() }

    /// Forgets the peak, where the system can; returns what is resident now.
    static func startPeak() -> Int {
        if let file = FileHandle(forWritingAtPath: "/proc/self/clear_refs") {
            file.write(Data("5".utf8))
            try? file.close()
        }
        return resident()
    }

    /// The most that was resident since ``startPeak()``.
    static func peak() -> Int { field("VmHWM:") ?? mostEver() }

    private static func field(_ name: String) -> Int? {
        let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
        for line in status.split(separator: "\n") where line.hasPrefix(name) {
            return line.split(separator: " ").dropFirst().first.flatMap { Int($0) }.map { $0 * 1024 }
        }
        return nil
    }

    /// Not Linux: the most that it ever was.
    private static func mostEver() -> Int {
        var usage = rusage()
        return getrusage(0, &usage) == 0 ? Int(usage.ru_maxrss) : 0
    }
}
