import HTTPWire
package import NIOCore

/// The connections of one event loop to all hosts that it asks.
///
/// Hosts of the configuration keep theirs. Other hosts, to which redirects lead, are bounded in number: the one that was
/// unused for the longest makes room for the next. Belongs to its loop and is used on it alone.
package final class UpstreamPools {
    private struct Place: Hashable {
        var origin: Origin
        // Connections to checked addresses are not shared with requests that need no check: those may have been made to
        // any address.
        var isChecked: Bool
    }

    private struct Member {
        var pool: UpstreamPool
        var lastUse: UInt64
    }

    private let loop: any EventLoop
    private let limits: UpstreamLimits
    private let tls: OriginTLS?
    private let permitsPeer: @Sendable (SocketAddress) -> Bool
    private let mostGuests: Int
    private var members: [Place: Member] = [:]
    private var hosts: Set<Origin> = []
    private var uses: UInt64 = 0
    /// The host that was asked for last.
    private var last: (isSecure: Bool, authority: String, origin: Origin)?

    /// - Parameters:
    ///   - limits: What each host is given.
    ///   - tls: For `https`; without it such hosts count as unreachable.
    ///   - permitsPeer: Which addresses checked requests may be connected to.
    ///   - mostGuests: How many hosts besides those of the configuration have connections at once.
    package init(
        loop: any EventLoop, limits: UpstreamLimits, tls: OriginTLS?,
        permitsPeer: @escaping @Sendable (SocketAddress) -> Bool = \.isPublic, mostGuests: Int = 64
    ) {
        self.loop = loop
        self.limits = limits
        self.tls = tls
        self.permitsPeer = permitsPeer
        self.mostGuests = mostGuests
    }

    /// Says which hosts the configuration names.
    package func adopt(_ hosts: Set<Origin>) { self.hosts = hosts }

    /// Why there are no connections to a host.
    package enum Refusal: Error {
        /// It is no host that can be asked.
        case noHost
        /// Too many hosts that redirects led to are being asked.
        case tooManyHosts
    }

    /// The connections to a host.
    ///
    /// - Parameters:
    ///   - authority: Host and port, as a URL has them.
    ///   - isChecked: Whether to connect to permitted addresses only: for a host that somebody else has named.
    package func pool(
        isSecure: Bool, authority: String, isChecked: Bool
    ) throws(Refusal) -> UpstreamPool {
        uses += 1
        guard let origin = known(isSecure: isSecure, authority) else { throw .noHost }
        let place = Place(origin: origin, isChecked: isChecked)
        if let index = members.index(forKey: place) {
            members.values[index].lastUse = uses
            return members.values[index].pool
        }
        let isGuest = isChecked || !hosts.contains(origin)
        if isGuest { try makeRoom() }
        let pool = UpstreamPool(
            origin: origin, limits: limits, loop: loop, tls: tls, permitsPeer: isChecked ? permitsPeer : nil)
        members[place] = Member(pool: pool, lastUse: uses)
        return pool
    }

    /// The host that a spelling names: one host has one pool, however it is written.
    private func known(isSecure: Bool, _ authority: String) -> Origin? {
        guard last?.isSecure != isSecure || last?.authority != authority else { return last?.origin }
        guard Array(authority.utf8).withUnsafeBytes(RequestTarget.isAuthority),
            let origin = Origin((isSecure ? "https://" : "http://") + authority)
        else { return nil }
        last = (isSecure, authority, origin)
        return origin
    }

    private func makeRoom() throws(Refusal) {
        var guests = members.filter { $0.key.isChecked || !hosts.contains($0.key.origin) }
        while guests.count >= mostGuests {
            let idle = guests.filter { $0.value.pool.isIdle }
            guard let oldest = idle.min(by: { $0.value.lastUse < $1.value.lastUse }) else { throw .tooManyHosts }
            oldest.value.pool.close()
            members[oldest.key] = nil
            guests[oldest.key] = nil
        }
    }

    /// How many hosts have connections, or had them a moment ago.
    var count: Int { members.count }

    /// Closes what is idle, for a server that goes down.
    package func close() { for member in members.values { member.pool.close() } }
}
