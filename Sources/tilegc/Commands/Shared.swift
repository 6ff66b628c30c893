import ArgumentParser
import ObjectStorage
import SharedTier
import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// `tilegc shared`.
struct Shared: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "shared",
        abstract: "Expires, counts or sweeps what proxies share in a bucket of an S3 server.",
        discussion: """
            The keys are those of the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; and \
            AWS_REGION (default: us-east-1).
            """,
        subcommands: [ExpireShared.self, CountShared.self, SweepShared.self])
}

/// The bucket that a command is about.
struct BucketArgument: ParsableArguments {
    @Argument(help: ArgumentHelp("The bucket: http(s)://HOST/BUCKET[/PREFIX], as --shared of tileproxy names it."))
    var bucket: String

    @Flag(help: "The bucket's name is part of the host's name.")
    var virtualHost = false

    @Option(
        help: ArgumentHelp(
            "A PEM file of certificate authorities that an https server may have besides the system's.",
            valueName: "file"))
    var certificateAuthorities: String?

    /// Does something with the bucket's client.
    ///
    /// - Parameter request: How long a request may take.
    func use(within request: Duration = .seconds(300), _ body: (S3Client, ObjectNames) async throws -> Void)
        async throws
    {
        let environment = ProcessInfo.processInfo.environment
        let address: BucketAddress
        let credentials: S3Credentials
        do throws(S3Error) {
            address = try BucketAddress(
                bucket, region: environment["AWS_REGION"] ?? "us-east-1", isVirtualHost: virtualHost)
            guard let key = environment["AWS_ACCESS_KEY_ID"], let secret = environment["AWS_SECRET_ACCESS_KEY"] else {
                throw S3Error(.invalid, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to the bucket's keys")
            }
            let token = environment["AWS_SESSION_TOKEN"].flatMap { $0.isEmpty ? nil : $0 }
            credentials = try S3Credentials(accessKey: key, secretKey: secret, sessionToken: token)
        } catch { throw Failure(.usage, error.message) }
        do {
            try await address.withClient(
                credentials, certificateAuthorities: certificateAuthorities, request: request,
                now: CacheClock.system.now
            ) { client in try await body(client, address.names) }
        } catch let error as S3Error { throw Failure(error) }
    }

    /// What adds marks.
    func writer(_ client: S3Client, _ names: ObjectNames) -> MarkWriter {
        MarkWriter(client, names, now: CacheClock.system.now, ticks: CacheClock.system.ticks)
    }
}

/// `tilegc shared expire`.
struct ExpireShared: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "expire",
        abstract: "Marks tiles stale for all proxies on the bucket, which heed it within five seconds.",
        discussion: """
            What they have is asked about at its server before its next use, and nothing is fetched that nobody asks for. \
            Without --zoom and --bbox the whole source is expired. Several may run at once: none undoes another.
            """)

    @OptionGroup var bucket: BucketArgument

    @Option(help: ArgumentHelp("The source.", valueName: "name"), transform: ArgumentValues.source)
    var source: SourceName

    @Option(
        help: ArgumentHelp("Only tiles of these zooms: 7 or 0-7.", valueName: "zooms"),
        transform: ArgumentValues.zooms)
    var zoom: ClosedRange<Int>?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Only tiles that this box touches, in degrees; west > east crosses the antimeridian.",
            valueName: "west,south,east,north"),
        transform: ArgumentValues.box)
    var bbox: GeoBox?

    @OptionGroup var report: ReportOptions

    func run() async throws {
        try await bucket.use(within: MarkWriter.request) { client, names in
            let writer = bucket.writer(client, names)
            let random = UInt32.random(in: 0...UInt32.max)
            // The box is looked at before anything is sent.
            _ = try Marks.expiring(
                source, zooms: zoom, box: bbox, after: Marks(), at: Timestamp(Date()), random: random)
            var count = 0
            try await writer.add { known, now in
                let marks = try Marks.expiring(source, zooms: zoom, box: bbox, after: known, at: now, random: random)
                count = marks.list.count + marks.epochs.count
                return marks
            }
            let output = StandardOutput()
            if report.json {
                try output.line(.object([("marks", .integer(count))]))
            } else {
                try output.line("Marked \(source) for all proxies on the bucket: \(Figure.count(count, "mark")).")
            }
            try output.finish()
        }
    }
}

/// `tilegc shared stats`.
struct CountShared: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "stats", abstract: "Counts the tiles in the bucket by listing them all.")

    @OptionGroup var bucket: BucketArgument

    @Option(help: ArgumentHelp("Only tiles of this source.", valueName: "name"), transform: ArgumentValues.source)
    var source: SourceName?

    @OptionGroup var report: ReportOptions

    func run() async throws {
        Interrupt.watch()
        try await bucket.use { client, names in
            let figures = try await BucketSweep(client, names, source: source)
                .run(deletingBefore: nil, unless: { Interrupt.isRequested })
            let output = StandardOutput()
            if report.json {
                try output.line(
                    .object([("objects", .integer(figures.objects)), ("bytes", .integer(Int(figures.bytes)))]))
            } else {
                try output.line(
                    "\(Figure.count(figures.objects, "object")) of \(Figure.size(Int(figures.bytes))) in the bucket.")
            }
            try output.finish()
            if figures.wasStopped { throw Failure(.interrupted, "interrupted: not all were counted") }
        }
    }
}

/// `tilegc shared sweep`.
struct SweepShared: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "sweep",
        abstract: "Deletes tiles that were written to the bucket longer ago than a time.",
        discussion: """
            Proxies may go on: what they miss they ask its server for. Run it again after an interrupt. A lifecycle rule of \
            the bucket does the same without listing everything, where the server has those.
            """)

    @OptionGroup var bucket: BucketArgument

    @Option(
        help: ArgumentHelp("Written longer ago than this: 90d, 12h.", valueName: "age"),
        transform: ArgumentValues.age)
    var olderThan: Int

    @Option(
        help: ArgumentHelp("Delete so many at most.", valueName: "n"), transform: ArgumentValues.count)
    var maxObjects: Int?

    @Option(help: ArgumentHelp("Only tiles of this source.", valueName: "name"), transform: ArgumentValues.source)
    var source: SourceName?

    @OptionGroup var report: ReportOptions

    func run() async throws {
        Interrupt.watch()
        try await bucket.use { client, names in
            // Ages are by the bucket's clock.
            let time = try await bucket.writer(client, names).read().now.adding(seconds: -Int64(olderThan))
            let figures = try await BucketSweep(client, names, source: source)
                .run(deletingBefore: time, most: maxObjects ?? .max, unless: { Interrupt.isRequested })
            let output = StandardOutput()
            if report.json {
                try output.line(
                    .object([("deleted", .integer(figures.deleted)), ("failed", .integer(figures.failed))]))
            } else {
                try output.line("Deleted \(Figure.count(figures.deleted, "object")).")
            }
            try output.finish()
            if figures.failed > 0 {
                throw Failure(
                    .inputOutput, "\(Figure.count(figures.failed, "object")) could not be deleted: run it again")
            }
            if figures.wasStopped, Interrupt.isRequested {
                throw Failure(.interrupted, "interrupted: what was deleted so far is; run it again for the rest")
            }
        }
    }
}

extension Failure {
    /// Why a bucket did not do what it was asked.
    fileprivate init(_ error: S3Error) {
        switch error.code {
        case .refused, .clock: self.init(.refused, error.message)
        case .missingBucket: self.init(.noInput, error.message)
        default: self.init(.inputOutput, error.message)
        }
    }
}
