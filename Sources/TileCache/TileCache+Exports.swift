// An app imports TileCache alone: keys, boxes, limits and reports are the store's own types.
@_exported public import TileStore

@_exported public import struct CacheEngine.Backoff
@_exported public import enum CacheEngine.FetchPriority
@_exported public import enum CacheEngine.LoadMode
@_exported public import struct CacheEngine.NetworkUse
@_exported public import enum CacheEngine.StaleReason
