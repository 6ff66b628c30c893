import Testing
import TileStoreTesting

/// Runs a suite's tests beside Swift's own pool of threads: they wait for long without a pause.
struct OwnThreadsTrait: SuiteTrait, TestTrait, TestScoping {
    var isRecursive: Bool { true }

    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        if #available(macOS 15, iOS 18, tvOS 18, visionOS 2, *) {
            try await withTaskExecutorPreference(OwnThreads.waiting, operation: function)
        } else {
            try await function()
        }
    }
}

extension Trait where Self == OwnThreadsTrait {
    static var ownThreads: Self { Self() }
}
