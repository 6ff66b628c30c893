package import NIOCore
package import ObjectStorage
package import TileStore

/// Adds marks to a bucket's index: carries out what a ``MarkAuthor`` says.
package struct MarkWriter: Sendable {
    /// How long a request of its client's may take: an author writes within ``MarkAuthor/window`` of its reading.
    package static let request = Duration.seconds(2)

    private let objects: any SharedObjects
    private let names: ObjectNames
    private let loop: any EventLoop
    private let now: @Sendable () -> Timestamp
    private let ticks: @Sendable () -> UInt64
    private let sleep: @Sendable (_ nanoseconds: UInt64) async throws -> Void

    /// - Parameters:
    ///   - now: The time that counts where the bucket tells none.
    ///   - ticks: Nanoseconds of a clock that goes forward.
    package init(
        _ objects: any SharedObjects, _ names: ObjectNames, on loop: any EventLoop,
        now: @escaping @Sendable () -> Timestamp, ticks: @escaping @Sendable () -> UInt64,
        sleep: @escaping @Sendable (_ nanoseconds: UInt64) async throws -> Void
    ) {
        (self.objects, self.names, self.loop) = (objects, names, loop)
        (self.now, self.ticks, self.sleep) = (now, ticks, sleep)
    }

    /// The index, and the bucket's time.
    ///
    /// - Throws: `S3Error`: the bucket's own, or that the index is not one of this version.
    package func read() async throws(S3Error) -> (marks: Marks, now: Timestamp) {
        let result = await withCheckedContinuation { done in
            loop.execute {
                _ = objects.get(names.index, unlessMatching: nil, on: loop) { done.resume(returning: $0) }
            }
        }
        switch try result.get() {
        case .missing(let date), .notModified(let date): return (Marks(), try time(date))
        case .object(let object):
            guard let marks = object.bytes.withUnsafeReadableBytes({ Marks(json: $0) }) else {
                // Writing over what cannot be read could lose marks.
                throw S3Error(
                    .malformed, "\(names.index) is no index of this version: use the one that wrote it, or remove it")
            }
            // What lies in the future is left out, and so mended with the next writing.
            let time = try time(object.date)
            return (marks.plausible(at: time), time)
        }
    }

    /// The bucket's time.
    ///
    /// - Throws: Where it cannot be right: a mark or an epoch that lies in the future would be one for ever.
    private func time(_ date: Timestamp?) throws(S3Error) -> Timestamp {
        let here = now()
        guard let date else { return here }
        guard !ClockOffset(bucket: date, here: here).isImplausible else {
            throw S3Error(
                .malformed,
                "the bucket's clock says \(date), this machine's \(here): set the one that is wrong; nothing is expired"
            )
        }
        return date
    }

    private func write(_ marks: Marks) async throws(S3Error) {
        let bytes = ByteBuffer(string: marks.json)
        let result = await withCheckedContinuation { done in
            loop.execute {
                objects.put(names.index, bytes, .none, digest: nil, on: loop) { done.resume(returning: $0) }
            }
        }
        _ = try result.get()
    }

    /// Adds what a closure makes of the index and the bucket's time, so that it stays there.
    ///
    /// Takes some seconds: until no other author can be left who has not read it.
    /// - Throws: `S3Error` of the last request if the bucket fails too often; `CancellationError`. What was to be added may be
    ///   there or not: adding it once more does no harm.
    package func add(_ make: (Marks, Timestamp) throws -> Marks) async throws {
        let (known, bucketNow) = try await read()
        var author = MarkAuthor(adding: try make(known, bucketNow), at: bucketNow)
        var action = author.begin(at: ticks())
        var last = S3Error(.unavailable, "\(names.index) could not be written")
        while true {
            var event: MarkAuthor.Event
            switch action {
            case .read:
                do throws(S3Error) { event = .index(try await read().marks) } catch {
                    guard error.code != .malformed else { throw error }
                    (event, last) = (.failed(mayHappen: false), error)
                }
            case .write(let marks):
                do throws(S3Error) {
                    try await write(marks)
                    event = .written
                } catch {
                    // What was answered was not carried out.
                    let mayHappen = error.code == .timeout || error.code == .connection
                    (event, last) = (.failed(mayHappen: mayHappen), error)
                }
            case .wait(let nanoseconds):
                try await sleep(nanoseconds)
                event = .waited
            case .done: return
            case .giveUp: throw last
            }
            action = author.on(event, at: ticks())
        }
    }
}

extension Marks {
    /// What expires some tiles of a source; all of them by another epoch.
    ///
    /// - Parameters:
    ///   - zooms: `nil` for all.
    ///   - box: `nil` for everywhere.
    ///   - now: By the bucket's clock.
    ///   - random: Tells epochs of one second apart.
    /// - Throws: What is wrong with the zooms.
    package static func expiring(
        _ source: SourceName, zooms: ClosedRange<Int>?, box: GeoBox?, after known: Marks, at now: Timestamp,
        random: UInt32
    ) throws -> Marks {
        var marks = Marks()
        guard zooms != nil || box != nil else {
            marks.raise(source, to: known.epoch(of: source).next(at: now, random: random))
            return marks
        }
        let zooms = zooms ?? 0...28
        let spans = try (box ?? GeoBox(west: -180, south: -90, east: 180, north: 90)).spans(zoom: zooms.upperBound)
        for span in spans {
            guard let mark = Mark(source: source, zooms: zooms, columns: span.columns, rows: span.rows, time: now)
            else {
                throw StoreError(.invalidValue, "the bucket's clock says \(now): set it")
            }
            marks.add(mark)
        }
        return marks
    }
}
