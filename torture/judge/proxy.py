"""A TCP proxy between clients and their server, which can be silent, cut, swallow a reply or swallow what is pushed."""

import re
import socket
import struct
import threading

PUSHED_AFTER = (b"SUBSCRIBE", b"LISTEN ")  # a connection that has sent one of these hears what nobody asked it for
PUSH = re.compile(rb"[*>][34]\r\n\$[78]\r\n[ps]?message\r\n|A\0\0\0")  # a message of Redis, a notification of PostgreSQL


class Pipe:
    """One connection of a client, and the one to the server behind it."""

    def __init__(self, proxy, client, near):
        self.proxy, self.client, self.near = proxy, client, near
        self.hears_pushes = self.loses_next = False
        self.far = socket.create_connection(("127.0.0.1", proxy.target), 5)
        self.far.settimeout(None)
        for end in (near, self.far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink, passes in ((near, self.far, self._requests), (self.far, near, self._replies)):
            threading.Thread(target=self._pump, args=(source, sink, passes), daemon=True).start()

    def _pump(self, source, sink, passes):
        try:
            while data := source.recv(65536):
                self.proxy.wait_while_silent(self.client)
                if passes(data):
                    sink.sendall(data)
        except OSError:
            pass
        self.cut()

    def _requests(self, data):
        self.hears_pushes |= any(word in data.upper() for word in PUSHED_AFTER)
        if self.proxy.name in data:
            self.proxy.asked.add(self.client)
            if self.client in self.proxy.loses_reply_of:
                self.proxy.loses_reply_of.remove(self.client)
                self.loses_next = True
        return True

    def _replies(self, data):
        if self.loses_next:
            self.proxy.lost.append(self.client)
            self.cut()
            return False
        if self.hears_pushes and self.proxy.swallows_pushes and PUSH.match(data):
            self.proxy.swallowed += 1
            return False
        return True

    def cut(self):
        """By a reset, as a firewall does."""
        for end in (self.near, self.far):
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()
        self.proxy.forget(self)


class Proxy:
    """Each client has its own port, so that a fault can hit one of them."""

    def __init__(self, target, name=b""):
        self.target = target  # the port of the server
        self.name = name  # what the requests for the lock have in them
        self.asked: "set[str]" = set()  # clients whose request for the lock has passed
        self.pipes: "set[Pipe]" = set()
        self.loses_reply_of: "set[str]" = set()  # clients whose next request for the lock gets no reply
        self.lost: "list[str]" = []
        self.swallows_pushes = False
        self.swallowed = 0
        self.silent_for: "set[str]" = set()
        self.changed = threading.Condition()
        self.listeners: "list[socket.socket]" = []

    def port_for(self, client):
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.listeners.append(listener)
        threading.Thread(target=self._accept, args=(client, listener), daemon=True).start()
        return listener.getsockname()[1]

    def _accept(self, client, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                pipe = Pipe(self, client, near)
            except OSError:
                near.close()  # the server is down
                continue
            with self.changed:
                self.pipes.add(pipe)

    def forget(self, pipe):
        with self.changed:
            self.pipes.discard(pipe)

    def wait_while_silent(self, client):
        with self.changed:
            self.changed.wait_for(lambda: client not in self.silent_for)

    def be_silent(self, clients):
        with self.changed:
            self.silent_for |= set(clients)

    def speak(self):
        with self.changed:
            self.silent_for.clear()
            self.changed.notify_all()

    def cut(self, clients=None):
        with self.changed:
            hit = [pipe for pipe in self.pipes if clients is None or pipe.client in clients]
        for pipe in hit:
            pipe.cut()

    def close(self):
        self.speak()
        for listener in self.listeners:
            listener.close()
        self.cut()
