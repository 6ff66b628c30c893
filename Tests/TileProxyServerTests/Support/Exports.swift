// For all files of this module: what the proxy is made of, and who talks to it in tests.
@_exported import HTTPListener
@_exported import HTTPWire
@_exported import OriginClient
@_exported import TileCacheTesting
