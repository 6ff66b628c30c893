#if canImport(CryptoKit)
import CryptoKit

/// SHA-256 by CryptoKit.
enum SHA256 {
    static func digest(of bytes: UnsafeRawBufferPointer) -> BlobDigest {
        var state = CryptoKit.SHA256()
        state.update(bufferPointer: bytes)
        return state.finalize().withUnsafeBytes { BlobDigest(bytes: $0) }
    }

    /// A hash of bytes that come one piece after the other.
    final class Stream {
        private var state = CryptoKit.SHA256()

        func update(_ bytes: UnsafeRawBufferPointer) { state.update(bufferPointer: bytes) }

        /// The digest of all pieces; nothing can be added afterwards.
        func finish() -> BlobDigest {
            state.finalize().withUnsafeBytes { BlobDigest(bytes: $0) }
        }
    }
}
#else
import CLibcrypto
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// SHA-256 by libcrypto's EVP interface, with the algorithm fetched once (the one-call form fetches it every time).
enum SHA256 {
    // The algorithm itself is immutable and shared by all threads.
    private nonisolated(unsafe) static let algorithm: OpaquePointer = {
        guard let algorithm = EVP_MD_fetch(nil, "SHA256", nil) else {
            preconditionFailure("libcrypto offers no SHA-256: its configuration on this machine is broken")
        }
        return algorithm
    }()

    /// Hashes bytes in the calling thread's own context: making one costs as much as hashing a small tile.
    static func digest(of bytes: UnsafeRawBufferPointer) -> BlobDigest {
        if let known = pthread_getspecific(threadContext) { return digest(of: bytes, OpaquePointer(known)) }
        guard let context = EVP_MD_CTX_new() else { preconditionFailure("out of memory") }
        pthread_setspecific(threadContext, UnsafeRawPointer(context))
        return digest(of: bytes, context)
    }

    private static func digest(of bytes: UnsafeRawBufferPointer, _ context: OpaquePointer) -> BlobDigest {
        withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { out in
            let result = out.baseAddress?.assumingMemoryBound(to: UInt8.self)
            precondition(
                EVP_DigestInit_ex2(context, algorithm, nil) == 1
                    && EVP_DigestUpdate(context, bytes.baseAddress, bytes.count) == 1
                    && EVP_DigestFinal_ex(context, result, nil) == 1, "libcrypto cannot hash")
            return BlobDigest(bytes: UnsafeRawBufferPointer(out))
        }
    }

    /// A hash of bytes that come one piece after the other.
    ///
    /// It has a context of its own, so that the thread may hash something else between two pieces.
    final class Stream {
        private let context: OpaquePointer

        init() {
            guard let context = EVP_MD_CTX_new() else { preconditionFailure("out of memory") }
            precondition(EVP_DigestInit_ex2(context, SHA256.algorithm, nil) == 1, "libcrypto cannot hash")
            self.context = context
        }

        deinit { EVP_MD_CTX_free(context) }

        func update(_ bytes: UnsafeRawBufferPointer) {
            precondition(EVP_DigestUpdate(context, bytes.baseAddress, bytes.count) == 1, "libcrypto cannot hash")
        }

        /// The digest of all pieces; nothing can be added afterwards.
        func finish() -> BlobDigest {
            withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { out in
                let result = out.baseAddress?.assumingMemoryBound(to: UInt8.self)
                precondition(EVP_DigestFinal_ex(context, result, nil) == 1, "libcrypto cannot hash")
                return BlobDigest(bytes: UnsafeRawBufferPointer(out))
            }
        }
    }

    // Freed with its thread.
    private static let threadContext: pthread_key_t = {
        var key = pthread_key_t()
        let made = pthread_key_create(&key) { context in
            if let context { EVP_MD_CTX_free(OpaquePointer(context)) }
        }
        precondition(made == 0, "no thread-specific storage is left")
        return key
    }()
}
#endif
