import NIOCore

/// How much memory a connection has in its buffers.
package struct BufferedBytes: Sendable {
    /// What has come from the client and has not been handed on.
    package var input: Int
    /// What waits for the client.
    package var output: Int
    /// Whether the client has to take some of it before it is sent more.
    package var isStalled: Bool

    /// All of it.
    package var total: Int { input + output }
}

extension HTTPConnection {
    /// How much more may wait in the channel.
    var roomInChannel: Int {
        // Where the channel cannot tell, there is none.
        let waiting = (try? context?.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? limits.waitingBytes
        return max(0, limits.waitingBytes - waiting)
    }

    var buffered: BufferedBytes {
        // Where the channel cannot tell, nothing waits.
        let output = (try? context?.channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
        return BufferedBytes(input: input?.storageCapacity ?? 0, output: output, isStalled: !isWritable)
    }
}
