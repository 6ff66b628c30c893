import ArgumentParser
import TileArchive
import TileStore

/// `tilegc verify`.
struct Verify: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "Reads everything again in a cache, a published set or an archive, and says what is damaged.",
        discussion: """
            Of a cache every blob is hashed, and manifest, counts and files are compared. Of a published set every list and every \
            tile of all its versions is compared with its name. Of an MBTiles or PMTiles file, or a z/x/y folder, every tile is \
            read: whether it is a picture, a vector tile or JSON that is whole, and is found where it is looked up.

            Exit status 1 means that something was found that matters: damaged or missing blobs, counts that disagree, \
            unreadable lines in the manifest. Orphans (files that nothing names, left by a process that was killed) \
            only take space and are no failure.

            --repair drops what is damaged or missing, so that it is fetched anew, removes orphans and rewrites what \
            is unreadable; the cache is then checked once more, and that decides the exit status.
            """)

    @OptionGroup var cache: CacheArgument

    @Flag(help: "Compare sizes instead of hashing every byte.")
    var quick = false

    @Flag(help: "Repair what can be repaired.")
    var repair = false

    @Option(
        help: ArgumentHelp("Refuse an archive with more tiles (default: 10000000).", valueName: "n"),
        transform: ArgumentValues.count)
    var maxTiles: Int = 10_000_000

    @OptionGroup var report: ReportOptions

    func run() throws {
        do {
            if let archive = try TileCollection.archive(at: cache.cache) { return try verify(archive) }
        } catch let error as ArchiveError where error.code == .damaged { throw Failure(.found, error.message) }
        let store = try cache.open(warns: false)
        let found = try check(store, repair: repair)
        // What is left after a repair is what counts.
        let ok = repair && !found.ok ? try check(store, repair: false).ok : found.ok
        try store.close()

        let output = StandardOutput()
        if report.json {
            try output.line(json(found, ok: ok))
        } else {
            for line in lines(found, ok: ok) { try output.line(line) }
        }
        try output.finish()
        if !ok { throw ExitCode(ExitStatus.found.rawValue) }
    }

    /// Checks an archive or a set.
    private func verify(_ archive: any ArchiveReader) throws {
        guard !repair, !quick else {
            throw Failure(
                .usage, "--quick and --repair are for caches: an archive is read as a whole, and never changed")
        }
        Interrupt.watch()
        let progress = Locked(Progress())
        // Asked once: MBTiles counts its rows each time.
        let total = Progress.isVisible ? archive.tileCount ?? 0 : 0
        let show: (Int, Int) -> Void = { done, bytes in
            progress.withLock { $0.show(done, of: total, "tiles, \(Figure.size(bytes))") }
        }
        let (tiles, blobs, bytes, problems, wasStopped): (Int, Int?, Int, ArchiveProblems, Bool)
        var skipped = 0
        if let set = archive as? SetReader {
            if set.hasMoreTiles(than: maxTiles) { throw tooManyTiles(set, maxTiles) }
            let found = try SetCheck(archive.path, wantsStop: { Interrupt.isRequested }, progress: show).run()
            (tiles, blobs, bytes) = (found.tiles, found.blobs, found.bytes)
            (problems, wasStopped) = (found.problems, found.wasStopped)
        } else {
            let found = try ArchiveCheck(archive: archive, mostTiles: maxTiles, progress: show).run()
            (tiles, blobs, bytes, skipped) = (found.tiles, nil, found.bytes, found.skipped)
            (problems, wasStopped) = (found.problems, found.wasStopped)
        }
        progress.withLock { $0.clear() }
        if wasStopped { throw Failure(.interrupted, "interrupted: not everything was read") }
        let output = StandardOutput()
        if report.json {
            try output.line(
                .object([
                    ("tiles", .integer(tiles)), ("blobsChecked", .optional(blobs)), ("bytesChecked", .integer(bytes)),
                    ("skipped", .integer(skipped)), ("damaged", .integer(problems.count)),
                    ("ok", .bool(problems.isEmpty)),
                    ("problems", .array(problems.lines.map { .string($0.printable) })),
                ]))
        } else {
            try output.line("Checked \(Figure.count(tiles, "tile")), \(Figure.size(bytes)).")
            for problem in problems.lines { try output.line("damaged: \(problem.printable)") }
            let more = problems.count - problems.lines.count
            if more > 0 { try output.line("… and \(Figure.count(more)) more") }
            try output.line(problems.isEmpty ? "It is sound." : "It is NOT sound.")
        }
        try output.finish()
        if !problems.isEmpty { throw ExitCode(ExitStatus.found.rawValue) }
    }

    private func check(_ store: TileStore, repair: Bool) throws -> VerifyReport {
        guard Progress.isVisible else { return try store.verify(quick: quick, repair: repair) }
        var progress = Progress()
        defer { progress.clear() }
        return try store.verify(quick: quick, repair: repair) { done, total in
            progress.show(done, of: total, "blobs")
        }
    }

    private func json(_ found: VerifyReport, ok: Bool) -> JSON {
        .object([
            ("entries", .integer(found.entries)),
            ("blobsChecked", .integer(found.blobsChecked)),
            ("bytesChecked", .integer(found.bytesChecked)),
            ("damaged", .integer(found.damaged.count)),
            ("missing", .integer(found.missing.count)),
            ("orphans", .integer(found.orphans.count)),
            ("countMismatches", .integer(found.countMismatches)),
            ("journalDamage", .integer(found.journalDamage)),
            ("repaired", .bool(found.repaired)),
            ("ok", .bool(ok)),
            ("damagedBlobs", .array(found.damaged.map { .string($0.description) })),
            ("missingBlobs", .array(found.missing.map { .string($0.description) })),
            ("orphanFiles", .array(found.orphans.map { .string($0) })),
            ("foreignFiles", .array(found.foreign.map { .string($0) })),
        ])
    }

    private func lines(_ found: VerifyReport, ok: Bool) -> [String] {
        let advice = found.repaired ? "" : " (--repair drops its entries, so that they are fetched anew)"
        var lines = [
            "Checked \(Figure.count(found.entries, "entry", "entries")) and "
                + "\(Figure.count(found.blobsChecked, "blob"))"
                + (quick ? " by size." : ", \(Figure.size(found.bytesChecked)).")
        ]
        lines += found.damaged.map { "damaged: blob \($0) holds other bytes than its name says\(advice)" }
        lines += found.missing.map { "missing: blob \($0) has no file\(advice)" }
        if found.countMismatches > 0 {
            lines.append(
                "counts: \(Figure.count(found.countMismatches)) do not agree with the entries"
                    + (found.repaired ? "" : " (--repair counts anew)"))
        }
        if found.journalDamage > 0 {
            lines.append(
                "manifest: \(Figure.count(found.journalDamage, "line or file", "lines or files")) damaged or missing; what was in them is lost"
                    + (found.repaired ? "" : " (--repair writes the manifest anew without them)"))
        }
        lines += found.orphans.map {
            "orphan: \($0.printable) belongs to no entry; it only takes space"
                + (found.repaired ? "" : " (--repair removes it)")
        }
        lines += found.foreign.map { "foreign: \($0.printable) was not made by the cache, which passes over it" }
        switch (ok, found.repaired && (!found.ok || !found.orphans.isEmpty)) {
        case (true, true): lines.append("Repaired: the cache is sound now.")
        case (true, false): lines.append("The cache is sound.")
        case (false, true): lines.append("Not everything could be repaired: run 'tilegc verify \(cache.cache)' again.")
        case (false, false): lines.append("The cache is NOT sound: run 'tilegc verify --repair \(cache.cache)'.")
        }
        return lines
    }
}
