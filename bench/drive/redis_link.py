"""A plain connection to Redis, to query the server."""

import socket


class Refused(Exception):
    pass


class Link:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")

    def close(self):
        self.reader.close()
        self.socket.close()

    @staticmethod
    def pack(*words):
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        return b"".join(parts)

    def send(self, *words):
        self.socket.sendall(self.pack(*words))

    def receive(self):
        line = self.reader.readline()
        if not line:
            raise EOFError("Redis has closed the connection")
        kind, text = line[:1], line[1:-2]
        if kind == b"-":
            raise Refused(text.decode())
        if kind == b":":
            return int(text)
        if kind == b"$":
            if text == b"-1":
                return None
            return self.reader.read(int(text) + 2)[:-2].decode()
        if kind == b"*":
            return None if text == b"-1" else [self.receive() for _ in range(int(text))]
        return text.decode()

    def ask(self, *words):
        self.send(*words)
        return self.receive()

    def pipeline(self, commands, chunk=1000):
        for start in range(0, len(commands), chunk):
            part = commands[start : start + chunk]
            self.socket.sendall(b"".join(self.pack(*words) for words in part))
            for _ in part:
                self.receive()

    def info(self, *sections):
        lines = self.ask("INFO", *sections).splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)
