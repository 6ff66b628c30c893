#if canImport(CryptoKit)
import CryptoKit

/// SHA-256 by CryptoKit.
struct SHA256 {
    private var state = CryptoKit.SHA256()
    init() {}

    mutating func update(_ bytes: UnsafeRawBufferPointer) { state.update(bufferPointer: bytes) }
    mutating func finish() -> BlobDigest { state.finalize().withUnsafeBytes { BlobDigest(bytes: $0) } }

    static func digest(of bytes: UnsafeRawBufferPointer) -> BlobDigest {
        var hash = SHA256()
        hash.update(bytes)
        return hash.finish()
    }
}
#else
import CLibcrypto

/// SHA-256 by libcrypto's EVP interface, with the algorithm fetched once (the one-call form fetches it every time).
struct SHA256: ~Copyable {
    // Both pointers are used by one value only; the algorithm itself is immutable and shared by all.
    private nonisolated(unsafe) static let algorithm: OpaquePointer = {
        guard let algorithm = EVP_MD_fetch(nil, "SHA256", nil) else {
            preconditionFailure("libcrypto offers no SHA-256: its configuration on this machine is broken")
        }
        return algorithm
    }()
    private let context: OpaquePointer

    init() {
        guard let context = EVP_MD_CTX_new() else { preconditionFailure("out of memory") }
        self.context = context
        restart()
    }

    deinit { EVP_MD_CTX_free(context) }

    private func restart() {
        precondition(EVP_DigestInit_ex2(context, Self.algorithm, nil) == 1, "libcrypto cannot start a SHA-256")
    }

    mutating func update(_ bytes: UnsafeRawBufferPointer) {
        precondition(EVP_DigestUpdate(context, bytes.baseAddress, bytes.count) == 1, "libcrypto cannot hash")
    }

    mutating func finish() -> BlobDigest {
        withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { out in
            let pointer = out.baseAddress?.assumingMemoryBound(to: UInt8.self)
            precondition(EVP_DigestFinal_ex(context, pointer, nil) == 1, "libcrypto cannot finish a SHA-256")
            return BlobDigest(bytes: UnsafeRawBufferPointer(out))
        }
    }

    static func digest(of bytes: UnsafeRawBufferPointer) -> BlobDigest {
        var hash = SHA256()
        hash.update(bytes)
        return hash.finish()
    }
}
#endif
