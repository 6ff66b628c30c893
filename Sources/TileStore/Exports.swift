// Addresses, boxes, shapes and errors are part of the store's own interface: one import has them all.
@_exported public import TileGeometry
