// An app imports TileCacheMapKit alone: modes, shapes, reports and errors are the cache's own types.
@_exported public import TileCache
