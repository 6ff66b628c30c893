// An app imports TileCache alone: keys, boxes, limits and reports are the store's own types, requests and responses those of
// HTTPTypes.
@_exported public import TileStore

@_exported public import struct CacheEngine.Backoff
@_exported public import enum CacheEngine.FetchPriority
@_exported public import enum CacheEngine.LoadMode
@_exported public import struct CacheEngine.NetworkUse
@_exported public import enum CacheEngine.StaleReason
@_exported public import struct HTTPTypes.HTTPField
@_exported public import struct HTTPTypes.HTTPFields
@_exported public import struct HTTPTypes.HTTPRequest
@_exported public import struct HTTPTypes.HTTPResponse
