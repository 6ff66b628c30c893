/// A measurement that makes no sense: better no figure than a wrong one.
struct BenchError: Error, CustomStringConvertible {
    var description: String
    init(_ description: String) { self.description = description }
}

/// Fails unless a condition holds.
func require(_ condition: Bool, _ otherwise: @autoclosure () -> String) throws {
    if !condition { throw BenchError(otherwise()) }
}
