import Foundation
import HTTPTypes
import TileCache

/// A tile server and the network to it, as a transport: answers for a folder of `z/x/y.png`, and can be out of reach.
actor SampleServer: TileTransport {
    private let pictures: [String: Data]
    private var isReachable = true
    /// How many bytes of bodies it has sent.
    private(set) var bytesSent = 0

    /// Reads all pictures of a folder.
    init(folder: String) throws {
        var pictures: [String: Data] = [:]
        for path in try FileManager.default.subpathsOfDirectory(atPath: folder) where path.hasSuffix(".png") {
            pictures["/" + path] = FileManager.default.contents(atPath: folder + "/" + path)
        }
        self.pictures = pictures
    }

    /// Whether requests arrive from now on.
    func setReachable(_ isReachable: Bool) { self.isReachable = isReachable }

    /// Answers with a tile that is stale at once, or with 304 if the request names its entity tag.
    func send(_ request: TransportRequest) async throws(TransportError) -> TransportResponse {
        guard isReachable else {
            throw TransportError(.connection, "\(request.head.authority ?? "the server") cannot be reached")
        }
        guard let path = request.head.path, let png = pictures[path] else {
            return TransportResponse(head: HTTPResponse(status: .notFound))
        }
        let tag = "\"\(png.count)-\(png.suffix(32).map { String($0, radix: 16) }.joined())\""
        var fields: HTTPFields = [.cacheControl: "max-age=0", .eTag: tag]
        if request.head.headerFields[.ifNoneMatch] == tag {
            return TransportResponse(head: HTTPResponse(status: .notModified, headerFields: fields))
        }
        fields[.contentType] = "image/png"
        bytesSent += png.count
        return TransportResponse(head: HTTPResponse(status: .ok, headerFields: fields), body: png)
    }
}
