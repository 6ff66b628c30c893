/// One of the things that take bytes from outside.
struct FuzzTarget: Sendable, CustomStringConvertible {
    let name: String
    /// Throws ``BrokenPromise`` where a promise does not hold.
    let body: @Sendable ([UInt8]) throws -> Void

    var description: String { name }

    static let all: [FuzzTarget] = wire + rules + stored + image + archives + settings
}

/// What an input has shown.
struct BrokenPromise: Error, CustomStringConvertible {
    let description: String
}

/// A promise that has to hold whatever the input is.
func promise(_ holds: @autoclosure () throws -> Bool, _ what: @autoclosure () -> String) throws {
    if try !holds() { throw BrokenPromise(description: "broken promise: \(what())") }
}
