package import Testing

/// Runs a suite's tests beside Swift's own pool of threads, on ``OwnThreads``.
package struct OwnThreadsTrait: SuiteTrait, TestTrait, TestScoping {
    /// Whether the tests compute for long without a pause; else they wait.
    fileprivate let computes: Bool

    package var isRecursive: Bool { true }

    package func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        if #available(macOS 15, iOS 18, tvOS 18, visionOS 2, *) {
            let threads = computes ? OwnThreads.computing : OwnThreads.waiting
            try await withTaskExecutorPreference(threads, operation: function)
        } else {
            try await function()
        }
    }
}

extension Trait where Self == OwnThreadsTrait {
    /// For tests that wait for long without a pause, for a socket or a process.
    package static var ownThreads: Self { Self(computes: false) }
    /// For tests that compute for long without a pause.
    package static var ownCores: Self { Self(computes: true) }
}
