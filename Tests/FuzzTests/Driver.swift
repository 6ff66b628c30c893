import Foundation

/// Fuzzing with coverage: `fuzz TARGET [arguments of libFuzzer]`, or `fuzz TARGET --replay FILE...` to run inputs once.
///
/// Part of the package only where `TILECACHE_FUZZ` is set, which also has our modules instrumented; see `Scripts/fuzz.sh`.
@main
struct Fuzz {
    static func main() {
        let arguments = CommandLine.arguments
        guard arguments.count > 1, let target = FuzzTarget.all.first(where: { $0.name == arguments[1] }) else {
            print(FuzzTarget.all.map(\.name).joined(separator: "\n"))
            exit(arguments.count > 1 ? 64 : 0)
        }
        run(target, Array(arguments.dropFirst(2)))
    }

    private static func run(_ target: FuzzTarget, _ rest: [String]) {
        if rest.first == "--replay" {
            for path in rest.dropFirst() {
                guard let data = FileManager.default.contents(atPath: path) else {
                    print("fuzz: \(path) cannot be read")
                    exit(66)
                }
                carryOut(target.body, [UInt8](data))
            }
            return
        }
        chosen = target.body
        // The driver keeps the arguments for as long as the process lives.
        var texts = (["fuzz"] + rest).map { strdup($0) }
        texts.append(nil)
        var count = Int32(rest.count + 1)
        texts.withUnsafeMutableBufferPointer { buffer in
            var pointer = buffer.baseAddress
            exit(LLVMFuzzerRunDriver(&count, &pointer, take))
        }
    }
}

// Set once, before the driver is started.
nonisolated(unsafe) private var chosen: @Sendable ([UInt8]) throws -> Void = { _ in }

private func take(_ bytes: UnsafePointer<UInt8>?, _ count: Int) -> Int32 {
    carryOut(chosen, Array(UnsafeBufferPointer(start: bytes, count: count)))
    return 0
}

/// libFuzzer keeps the input of a process that traps.
private func carryOut(_ body: ([UInt8]) throws -> Void, _ input: [UInt8]) {
    do { try body(input) } catch { fatalError("fuzz: \(error)") }
}

@_silgen_name("LLVMFuzzerRunDriver")
private func LLVMFuzzerRunDriver(
    _ count: UnsafeMutablePointer<Int32>,
    _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?>,
    _ body: @convention(c) (UnsafePointer<UInt8>?, Int) -> Int32
) -> Int32
