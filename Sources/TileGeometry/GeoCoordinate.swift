/// A place in degrees of longitude and latitude (WGS 84).
public struct GeoCoordinate: Hashable, Sendable, CustomStringConvertible {
    /// Degrees east of Greenwich, -180 to 180.
    public let longitude: Double
    /// Degrees north of the equator, -90 to 90.
    public let latitude: Double

    /// Checks and takes a place.
    ///
    /// - Throws: ``StoreError`` with ``StoreError/Code/invalidValue`` if a number is out of range or no number.
    public init(longitude: Double, latitude: Double) throws {
        guard (-180...180).contains(longitude), (-90...90).contains(latitude) else {
            throw StoreError(
                .invalidValue,
                "longitude \(longitude), latitude \(latitude): expected degrees in -180...180 and -90...90")
        }
        self.longitude = longitude
        self.latitude = latitude
    }

    init(uncheckedLongitude longitude: Double, latitude: Double) {
        self.longitude = longitude
        self.latitude = latitude
    }

    /// `longitude,latitude`.
    public var description: String { "\(longitude),\(latitude)" }
}
