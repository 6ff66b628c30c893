/// Whether responses with this status never have a body (RFC 9110 §6.4.1).
package func isBodiless(_ status: Int) -> Bool { status < 200 || status == 204 || status == 304 }
