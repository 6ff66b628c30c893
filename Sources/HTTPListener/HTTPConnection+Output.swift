import HTTPWire
import NIOCore

// What goes out to the client.
extension HTTPConnection {
    func buffer(_ capacity: Int) -> ByteBuffer {
        context?.channel.allocator.buffer(capacity: capacity) ?? ByteBuffer()
    }

    func send(_ bytes: ByteBuffer, flush: Bool) {
        write(bytes)
        guard !isProcessing else { return }
        if flush { flushIfNeeded() } else { flushSoon() }
    }

    /// Sends a part of a body.
    func send(part bytes: ByteBuffer) {
        guard smallWrites.add(bytes.readableBytes), let context else {
            send(bytes, flush: true)
            return
        }
        if stalledSince == nil { stalledSince = .now() }
        let written = context.eventLoop.makePromise(of: Void.self)
        written.futureResult.assumeIsolated().whenSuccess { self.smallWritesWentOut() }
        context.write(wrapOutboundOut(bytes), promise: written)
        wrote(bytes.readableBytes)
        if !isProcessing { flushIfNeeded() }
    }

    private func smallWritesWentOut() {
        smallWrites.wentOut()
        if isWritable { becameWritable() }
    }

    /// Flushes at the end of the loop's turn, so that a head goes out with its body if that is there, and else without.
    func flushSoon() {
        guard !flushIsScheduled, let context else { return }
        flushIsScheduled = true
        let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
        context.eventLoop.execute {
            bound.value.flushIsScheduled = false
            bound.value.flushIfNeeded()
        }
    }

    func write(_ bytes: ByteBuffer) {
        context?.write(wrapOutboundOut(bytes), promise: nil)
        wrote(bytes.readableBytes)
    }

    private func wrote(_ bytes: Int) {
        writtenBytes += bytes
        wantsFlush = true
    }

    /// The client has taken enough of what waited for it.
    func becameWritable() {
        accountForReader(at: .now())
        stalledSince = nil
        let callbacks = writableCallbacks
        writableCallbacks = []
        for callback in callbacks { callback() }
        process()
    }

    /// Accounts for the time in which the client was waited for to read, and for what it has read meanwhile.
    func accountForReader(at now: NIODeadline) {
        guard let since = stalledSince, let channel = context?.channel else { return }
        // Where the channel cannot tell, all that has been written counts as read.
        let buffered = (try? channel.syncOptions?.getOption(.bufferedWritableBytes)) ?? 0
        let drained = writtenBytes - buffered
        readPatience.spend(now - since, for: drained - drainedBytes)
        drainedBytes = drained
        stalledSince = now
        if buffered == 0 { readPatience.renew() }
    }

    func flushIfNeeded() {
        guard wantsFlush else { return }
        wantsFlush = false
        context?.flush()
    }

    func notifyWhenWritable(_ body: @escaping () -> Void) {
        if isWritable { body() } else { writableCallbacks.append(body) }
    }

    func refuse(_ violation: Violation, _ output: inout ByteBuffer) {
        loop.refusals?.refused(status: violation.status, from: client)
        output.writeImmutableBuffer(loop.refusal(violation))
        write(output)
        output = ByteBuffer()
        finishConnection(drains: true)
    }
}
