import CacheEngine
import HTTPCaching
import HTTPListener
import HTTPTypes
import TileCache
import TileStore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

// Heads are made from what the long way says of a sample, so that both say the same.
extension ReadyHead {
    /// The head of a source's tiles.
    convenience init(_ fields: ResponseFields, of source: ServedSource) {
        let sample = ReadyHead.sample(of: fields)
        let isAbsent = [204, 404, 410].contains(fields.status)
        // Without a media type the body has to be looked at.
        guard !fields.noCache, isAbsent || fields.status == 200 && fields.mediaType != nil else {
            self.init(unusable: fields)
            return
        }
        let tile = ServedTile(
            body: isAbsent ? .none : .memory(Data([0])), metadata: sample, blob: nil,
            status: ReadyHead.sampleCacheStatus, result: .hit)
        func reply(_ conditions: ClientPreconditions) -> TileReply {
            var request = TileRequest()
            request.conditions = conditions
            return TileReply(tile, of: source, to: request, now: ReadyHead.sampleTime, boundary: "")
        }
        let full = reply(ClientPreconditions())
        let notModified = reply(ReadyHead.sampleConditions).response
        self.init(
            fields, full: full.response, notModified: notModified.status == .notModified ? notModified : nil,
            hasLength: full.length != nil && fields.status != 204, cacheControl: TileCacheControl(fields))
        hasBody = !isAbsent
        makesTag = !isAbsent
        let coding = fields.contentEncoding?.lowercased()
        needsGzip = !isAbsent && (coding == "gzip" || coding == "x-gzip")
        mustNotBeGzip = !isAbsent && coding == nil && source.kind == .vector
    }

    /// The head of a stored response of the generic routes.
    convenience init(_ fields: ResponseFields, via: Via) {
        let sample = ReadyHead.sample(of: fields)
        guard !fields.noCache, VaryMarker(sample) == nil else {
            self.init(unusable: fields)
            return
        }
        let stored = storedResponse(of: sample)
        func complete(_ response: HTTPResponse) -> HTTPResponse {
            var response = response
            via.add(to: &response.headerFields)
            ReadyHead.sampleCacheStatus.add(to: &response.headerFields)
            return response
        }
        self.init(
            fields, full: complete(stored.response(age: 0)), notModified: complete(stored.notModified(age: 0)),
            hasLength: !isBodiless(stored.status.code))
    }
}
