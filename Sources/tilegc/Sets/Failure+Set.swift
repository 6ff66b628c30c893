import TileSets
import TileStore

extension Failure {
    /// What is wrong with a set, or with reaching one.
    init(_ error: SetError) {
        let status: ExitStatus =
            switch error.code {
            case .notASet: .noInput
            case .damaged, .incomplete, .unexpectedRoot: .found
            case .invalid: .usage
            case .tooLarge, .unreachable, .busy: .inputOutput
            case .refused: .refused
            case .stopped: .interrupted
            }
        self.init(status, error.message)
    }

    /// Runs what works on a set; what goes wrong ends the command.
    static func ofSets<R>(_ body: () throws -> R) throws -> R {
        do { return try body() } catch let error as SetError { throw Failure(error) } catch let error as FileError {
            throw Failure(.inputOutput, "\(error)")
        }
    }
}
