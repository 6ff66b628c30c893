package import Testing

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// The real S3 server that `make check-s3` starts for tests; the environment names it.
///
/// Suites that use it have the trait ``OneAtATimeTrait``: some of their tests stop or kill it.
package struct BucketServer: Sendable {
    package let url: String
    /// A bucket for everybody; each test has a prefix or a source of its own in it.
    package let bucket: String
    /// A bucket that takes so many objects and no more.
    package let full: (bucket: String, count: Int)?
    package let accessKey: String
    package let secretKey: String
    /// Whether it is Ceph's gateway; else it is OpenStack Swift.
    package let isCeph: Bool
    private let processFile: String?

    /// The server; `nil`, with a word about it, where there is none.
    package static func named() -> BucketServer? {
        let environment = ProcessInfo.processInfo.environment
        guard let url = environment["TILE_TEST_S3"] else {
            print("skipped: no S3 server; `make check-s3` starts one (TILE_TEST_S3)")
            return nil
        }
        return BucketServer(url, environment)
    }

    private init(_ url: String, _ environment: [String: String]) {
        self.url = url
        bucket = environment["TILE_TEST_S3_BUCKET"] ?? "tiles"
        full = environment["TILE_TEST_S3_FULL"].flatMap { name in
            environment["TILE_TEST_S3_FULL_COUNT"].flatMap { Int($0) }.map { (name, $0) }
        }
        accessKey = environment["TILE_TEST_S3_ACCESS_KEY"] ?? ""
        secretKey = environment["TILE_TEST_S3_SECRET_KEY"] ?? ""
        isCeph = environment["TILE_TEST_S3_SERVER"] == "ceph"
        processFile = environment["TILE_TEST_S3_PID"]
    }

    /// The process in front, which is started again when it has been killed; `nil` if it is not known.
    package var process: Int32? {
        guard let processFile, let text = try? String(contentsOfFile: processFile, encoding: .utf8) else { return nil }
        return Int32(text)
    }

    /// Stops the process in front (SIGSTOP), or lets it go on.
    package func signal(_ number: Int32) throws {
        let process = try #require(process)
        #expect(kill(process, number) == 0)
    }

    /// Kills the process in front, and waits until another one answers in its place.
    package func killAndWait() async throws {
        let killed = try #require(process)
        #expect(kill(killed, SIGKILL) == 0)
        while process == killed { try await Task.sleep(nanoseconds: 10_000_000) }
    }
}

/// Runs the tests of all suites that have it one after another.
package struct OneAtATimeTrait: SuiteTrait, TestTrait, TestScoping {
    private actor Turns {
        private var isTaken = false
        private var waiting: [CheckedContinuation<Void, Never>] = []

        func take() async {
            guard isTaken else {
                isTaken = true
                return
            }
            await withCheckedContinuation { waiting.append($0) }
        }

        func give() {
            if waiting.isEmpty { isTaken = false } else { waiting.removeFirst().resume() }
        }
    }
    private static let turns = Turns()

    package var isRecursive: Bool { true }

    package func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        await Self.turns.take()
        let result: Result<Void, any Error>
        do { result = .success(try await function()) } catch { result = .failure(error) }
        await Self.turns.give()
        try result.get()
    }
}

extension Trait where Self == OneAtATimeTrait {
    /// For suites that use the one real server.
    package static var onBucketServer: Self { Self() }
}
