#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// Standard output, buffered.
///
/// Call ``finish()`` at the end: there is no flush at exit.
final class StandardOutput {
    private var buffer: [UInt8] = []

    /// Whether the reader has gone away.
    ///
    /// What is written then is dropped, which is no error.
    private(set) var isClosed = false

    /// Whether a reader that does not read is waited for only until the user wants to stop.
    private let endsWithInterrupt: Bool

    init(endsWithInterrupt: Bool = false) { self.endsWithInterrupt = endsWithInterrupt }

    /// A pipe that says it takes something takes so much at once, and nobody has to wait (POSIX: `PIPE_BUF`).
    private static let pipeBuffer = 4096

    /// Waits until something can be written; `false` if the user wants to stop first.
    private static func canWrite() -> Bool {
        while true {
            var poller = pollfd(fd: STDOUT_FILENO, events: Int16(POLLOUT), revents: 0)
            let count = poll(&poller, 1, 100)
            // What is wrong with it is for the write to say.
            if count > 0 || count < 0 && errno != EINTR { return true }
            if Interrupt.isRequested { return false }
        }
    }

    /// Writes text as it is.
    func write(_ text: String) throws {
        buffer.append(contentsOf: text.utf8)
        if buffer.count >= 1 << 16 { try finish() }
    }

    /// Writes text and a line break.
    func line(_ text: String) throws { try write(text + "\n") }

    /// Writes a value as one line of JSON.
    func line(_ value: JSON) throws { try line(value.text) }

    /// Writes bytes as they are.
    func write(_ bytes: some Collection<UInt8>) throws {
        buffer.append(contentsOf: bytes)
        if buffer.count >= 1 << 16 { try finish() }
    }

    /// Hands everything to the system.
    ///
    /// - Throws: ``Failure`` if the system refuses it (a full disk behind `>`).
    func finish() throws {
        defer { buffer.removeAll(keepingCapacity: true) }
        var done = 0
        while done < buffer.count, !isClosed {
            if endsWithInterrupt, !Self.canWrite() {
                isClosed = true
                return
            }
            let end = endsWithInterrupt ? min(buffer.count, done + Self.pipeBuffer) : buffer.count
            let count = buffer.withUnsafeBytes {
                platformWrite(STDOUT_FILENO, UnsafeRawBufferPointer(rebasing: $0[..<end]), from: done)
            }
            if count >= 0 {
                done += count
            } else if errno == EPIPE {
                isClosed = true
            } else if errno == EAGAIN {
                // Somebody made the terminal or pipe non-blocking: wait until it takes more.
                var poller = pollfd(fd: STDOUT_FILENO, events: Int16(POLLOUT), revents: 0)
                poll(&poller, 1, 1000)
            } else if errno != EINTR {
                throw Failure(.inputOutput, "cannot write to standard output: \(systemText(errno))")
            }
        }
    }
}

/// One line on standard error that people should see.
enum Message {
    /// Prints `tilegc: …`; whoever closed standard error does not want it.
    static func print(_ text: String) {
        // A progress line may stand there: start over it.
        let clear = Progress.isVisible ? Progress.Screen.current.clearing : ""
        write("\(clear)tilegc: \(oneLine(text))\n")
    }

    /// Writes to standard error without any addition.
    static func write(_ text: String) {
        let bytes = Array(text.utf8)
        var done = 0
        while done < bytes.count {
            let count = bytes.withUnsafeBytes { platformWrite(STDERR_FILENO, $0, from: done) }
            if count >= 0 { done += count } else if errno != EINTR { return }
        }
    }

    /// Names of files, tables and servers are in it, which must not drive the terminal.
    private static func oneLine(_ text: String) -> String {
        String(text.map { $0.isNewline ? " " : $0 }).printable
    }
}

private func platformWrite(_ descriptor: Int32, _ bytes: UnsafeRawBufferPointer, from start: Int) -> Int {
    write(descriptor, UnsafeRawBufferPointer(rebasing: bytes[start...]).baseAddress, bytes.count - start)
}

/// What the system says about an error number.
func systemText(_ number: Int32) -> String {
    String(cString: strerror(number))
}
