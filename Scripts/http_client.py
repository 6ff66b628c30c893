"""An HTTP client for asyncio, which says of broken answers too what came."""
import asyncio
import re


class Client:
    """Keeps one connection; says what came back, or that the answer broke off."""

    def __init__(self, port):
        self.port = port
        self.writer = None

    async def get(self, path):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        status, data, head = 0, b"", ""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status = int(head.split(" ", 2)[1])
            length = re.search(r"(?i)\r\ncontent-length: (\d+)", head)
            if length:
                data = await self.reader.readexactly(int(length.group(1)))
            elif re.search(r"(?i)\r\ntransfer-encoding: chunked", head):
                while size := int((await self.reader.readuntil(b"\r\n")).strip(), 16):
                    data += (await self.reader.readexactly(size + 2))[:-2]
                await self.reader.readuntil(b"\r\n")
            if re.search(r"(?i)\r\nconnection: close", head):
                self.close()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            return (-status if status else -1), data, head
        return status, data, head

    def close(self):
        if self.writer:
            self.writer.close()
        self.writer = None
