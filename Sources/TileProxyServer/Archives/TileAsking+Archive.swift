import CacheEngine
import HTTPListener
import TileCache
import TileCacheArchive
import TileStore

extension TileAsking {
    /// Walks down an archive's directories to a tile.
    func find(
        _ tile: TileAddress, _ archive: RemoteArchive, _ version: ArchiveVersion, isRepeated: Bool, learned: Int = 0
    ) {
        guard !fill.isOver else { return }
        func refuse(_ words: String) {
            take(.unprepared(.unusable(.body, words, host: OriginHost(tiles.fileRequest(of: source)).name)))
        }
        switch version.place(of: tile) {
        case .damaged(let why): refuse(why)
        case .absent:
            found = Candidate(absenceOf: key, mark: version.id, at: tiles.time.now)
            take(.looked(isEnough: true))
        case .tile(let bytes) where bytes.count > source.tiles.bodyLimit:
            let limit = source.tiles.bodyLimit
            refuse("a tile of \(bytes.count) bytes, which is more than the \(limit) that the source allows")
        case .tile(let bytes):
            let question = FileQuestion(bytes, of: version.file, mark: version.id, isRepeated: isRepeated)
            prepared(tiles.fileRequest(of: source), question)
        // So large that they put each other out of memory.
        case .leaf where learned == Self.mostDirectories: refuse("directories that are too large together")
        case .leaf(let leaf):
            archive.learn(leaf, of: version, source, on: tiles) { reading in
                switch reading {
                case .success:
                    self.find(tile, archive, version, isRepeated: isRepeated, learned: learned + 1)
                case .failure(let trouble):
                    // Else all is asked for once more with each request, where the version is another one each time.
                    let origin = isRepeated ? self.tiles.fileRequest(of: self.source).originName : nil
                    self.take(.unprepared(trouble.failure, origin: origin))
                }
            }
        }
    }

    /// So many directories are learnt for one tile at most: twice as many as may lead to one.
    private static let mostDirectories = 8
}
