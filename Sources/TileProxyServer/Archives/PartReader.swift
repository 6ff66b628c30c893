import CacheEngine
import HTTPCaching
import NIOCore
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Why a part of an archive or of a set at a server cannot be had.
struct PartTrouble: Error {
    let failure: TileFill.Failure
    /// What a client is told, if the part's own exchange has said it.
    var refusal: (words: Refusal, status: CacheStatus)?
}

/// Reads parts of an archive or of a set at a server: each once for all who need it at a time.
final class PartReader<Value: Sendable>: Sendable {
    /// What became of it: what the bytes say.
    typealias Reading = Result<Value, PartTrouble>

    /// Whose parts they are, for messages.
    private let name: String
    private let readings = Flights<String, Reading>()

    init(of name: String) { self.name = name }

    /// A part that makes no sense.
    func unusable(_ words: String) -> PartTrouble { PartTrouble(failure: .unusable(.body, words, host: name)) }

    /// Asks for a part, and reads it.
    ///
    /// It waits for nobody's leaving: others need the part too.
    /// - Parameters:
    ///   - label: What nothing else that is read has.
    ///   - body: Makes the value of the bytes, on a thread that may take its time.
    ///   - finish: Called once, on the loop.
    func ask(
        _ label: String, _ part: ArchivePart, of source: ServedSource, on tiles: TileLoop, onlyIfCached: Bool = false,
        _ body: @escaping @Sendable (Data) throws -> Value, _ finish: @escaping @Sendable (Reading) -> Void
    ) {
        // Who may not ask the server waits for nobody who does.
        guard let ticket = lead(onlyIfCached ? label + " cached" : label, tiles, finish) else { return }
        let (readings, bound) = (readings, NIOLoopBound(tiles, eventLoop: tiles.loop))
        TileExchange(tiles, source, part.key, onlyIfCached: onlyIfCached, subject: .part(part)) { outcome in
            switch outcome {
            case .refused(let words, let status, let failure):
                readings.land(ticket, .failure(PartTrouble(failure: failure ?? .none, refusal: (words, status))))
            case .tile(let candidate, _, _, _):
                self.decode(candidate, on: bound.value, body) { readings.land(ticket, $0) }
            }
        }.start()
    }

    /// Reads what is stored, or was brought.
    ///
    /// - Parameters: As of ``ask(_:_:of:on:onlyIfCached:_:_:)``.
    func read(
        _ label: String, of candidate: Candidate, on tiles: TileLoop,
        _ body: @escaping @Sendable (Data) throws -> Value,
        _ finish: @escaping @Sendable (Reading) -> Void
    ) {
        guard let ticket = lead(label, tiles, finish) else { return }
        let readings = readings
        decode(candidate, on: tiles, body) { readings.land(ticket, $0) }
    }

    private func lead(
        _ label: String, _ tiles: TileLoop, _ finish: @escaping @Sendable (Reading) -> Void
    ) -> Flights<String, Reading>.Ticket? {
        let loop = tiles.loop
        let hear: @Sendable (Reading) -> Void = { reading in loop.execute { finish(reading) } }
        guard let place = readings.follow(label, .visible, nil, hear: hear) else { return nil }
        return place.leads
    }

    private func decode(
        _ candidate: Candidate, on tiles: TileLoop, _ body: @escaping @Sendable (Data) throws -> Value,
        then finish: @escaping @Sendable (Reading) -> Void
    ) {
        candidate.read(on: tiles) { [self] data -> Reading in
            do { return .success(try body(data.get())) } catch { return .failure(unusable("\(error)")) }
        } then: {
            finish($0)
        }
    }
}

extension Candidate {
    /// Reads the bytes from their file on a thread that may wait, and computes with them on one that may take its time.
    func read<T: Sendable>(
        on tiles: TileLoop, _ body: @escaping @Sendable (Result<Data, any Error>) -> T,
        then finish: @escaping @Sendable (T) -> Void
    ) {
        let (worker, loop) = (tiles.service.worker, tiles.loop)
        if case .memory(let data) = self.body {
            return worker.compute(on: loop) {
                body(.success(data))
            } then: {
                finish($0)
            }
        }
        worker.read(on: loop) { _ in
            try self.body.data() ?? Data()
        } then: { read in
            worker.compute(on: loop) {
                body(read)
            } then: {
                finish($0)
            }
        }
    }
}

extension TileFill.Failure {
    /// Nothing was asked, and there is nothing.
    fileprivate static var none: Self {
        .noAnswer(TileFill.NoAnswer(OriginSetback(.unasked, .unreachable), mayPass: false))
    }
}
