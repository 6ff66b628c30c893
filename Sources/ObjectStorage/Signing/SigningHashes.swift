// The two hashes that S3 asks for besides SHA-256, which is the store's: HMAC-SHA256 for signatures and MD5 for Content-MD5.

#if canImport(CryptoKit)
import CryptoKit

/// HMAC-SHA256 (RFC 2104).
func hmacSHA256(key: [UInt8], _ message: [UInt8]) -> [UInt8] {
    Array(HMAC<CryptoKit.SHA256>.authenticationCode(for: message, using: SymmetricKey(data: key)))
}

/// MD5, which protects against damage on the way and against nothing else.
func md5(_ bytes: [UInt8]) -> [UInt8]? { Array(Insecure.MD5.hash(data: bytes)) }
#else
import CLibcrypto

/// HMAC-SHA256 (RFC 2104).
func hmacSHA256(key: [UInt8], _ message: [UInt8]) -> [UInt8] {
    var length = 0
    let code = [UInt8](unsafeUninitializedCapacity: 32) { out, count in
        let done = EVP_Q_mac(
            nil, "HMAC", nil, "SHA256", nil, key, key.count, message, message.count, out.baseAddress, 32, &length)
        precondition(done != nil && length == 32, "libcrypto offers no HMAC-SHA256: its configuration here is broken")
        count = 32
    }
    return code
}

/// MD5, which protects against damage on the way and against nothing else.
///
/// - Returns: `nil` where libcrypto does not offer it, as in FIPS mode.
func md5(_ bytes: [UInt8]) -> [UInt8]? {
    var length = 0
    var isDone = false
    let digest = [UInt8](unsafeUninitializedCapacity: 16) { out, count in
        isDone = EVP_Q_digest(nil, "MD5", nil, bytes, bytes.count, out.baseAddress, &length) == 1 && length == 16
        count = isDone ? 16 : 0
    }
    return isDone ? digest : nil
}
#endif
