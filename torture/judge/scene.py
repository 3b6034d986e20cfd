"""One scene: a server, a proxy, and clients on one lock. It keeps the ledger, asks holders whether they hold, and bounds every call."""

import contextlib
import queue
import signal
import tempfile
import time

from adaptor import Client
from ledger import Ledger
from proxy import Proxy

STEP = 0.01  # the judge looks around at least this often
PROBE = 0.05  # a holder is asked this often
BOUND = 20.0  # seconds that an answer may take, beyond what the call itself takes


class Scene:
    def __init__(self, library, settings, server, build, name, starting=contextlib.nullcontext()):
        self.library, self.settings, self.server, self.build, self.name = library, settings, server, build, name
        self.lease = settings.lease  # None: a hold has no end
        self.ledger, self.clients, self.inbox = Ledger(), [], queue.Queue()
        self.notes: "list[str]" = []
        self.probes, self.starting = True, starting
        self.late = 0.0  # the longest time by which the judge itself came late, since the last start of a client
        word = name.split(":")[-1].encode() if library.shows_names else b""
        self.proxy = Proxy(server.port, word) if server.port else None
        self.log = tempfile.TemporaryFile("w+")  # what the clients say on their standard error

    def client(self, name):
        address = self.library.address(self.server, self.proxy.port_for(name) if self.proxy else None)
        client = Client(name, self.library.command(self.build), {"TORTURE_ADDRESS": address, **self.settings.environment},
                        self.inbox, self.log)
        self.clients.append(client)
        return client

    def start(self, *names):
        """The clients with these names, when all of them are connected."""
        with self.starting:
            clients = [self.client(name) for name in names]
            is_ready = self.until(lambda: all(client.pending is None for client in clients), 180)
            if not is_ready or any(client.is_dead for client in clients):
                self.log.seek(0)
                raise SystemExit(f"{self.library.name}: an adaptor does not get ready: {self.notes} {self.log.read()[-300:]}")
        self.late = 0.0
        return clients

    # words

    def lock(self, client, hold=float("inf")):
        """Asks, and again whenever the library gives up; once granted, it is held for so many seconds."""
        client.asks_again, client.hold = True, hold
        if self.proxy:
            self.proxy.asked.discard(client.name)
        self.ledger.asked(client.name, client.say(f"lock {self.name}"))

    def wait_in_line(self, client, hold=float("inf")):
        """Asks, and returns when the server has that request: who asks now is behind it."""
        before = None if self.proxy else self.server.state()
        self.lock(client, hold)
        self.until(lambda: client.name in self.proxy.asked if self.proxy else self.server.state() != before, 20)
        self.wait(0.2)

    def lock_for(self, client, milliseconds):
        client.asks_again, client.hold = False, 0.3
        self.ledger.asked(client.name, client.say(f"lock {self.name} {milliseconds}", milliseconds / 1000))

    def unlock(self, client):
        """Soon: after its present answer."""
        client.release_at = 0.0
        self._go_on(client)

    def stall(self, client, seconds):
        self.settle(client)
        client.say(f"stall {int(seconds * 1000)}", seconds)

    def settle(self, client):
        """Waits until the client has answered, and asks it nothing more by itself."""
        client.is_free = False
        self.until(lambda: client.pending is None or client.is_dead, BOUND)

    def stop(self, client):
        self.settle(client)
        client.signal(signal.SIGSTOP)
        client.is_stopped = True
        self.ledger.stopped(client.name, time.monotonic())

    def go_on(self, client):
        client.is_stopped, client.is_free = False, True
        client.sent = max(client.sent, time.monotonic())
        self.ledger.continued(client.name, time.monotonic())
        client.signal(signal.SIGCONT)

    def kill(self, client):
        client.kill()
        self.ledger.died(client.name, time.monotonic())

    def fault(self):
        self.ledger.fault = time.monotonic()

    # time

    def until(self, is_true, seconds):
        at = time.monotonic()
        end = at + seconds
        while not is_true():
            if at > end:
                return False
            self._step()
            before, at = at, time.monotonic()
            self.late = max(self.late, at - before - STEP)
        return True

    def wait(self, seconds):
        self.until(lambda: False, seconds)

    def granted(self, client, seconds):
        return self.until(lambda: client.holds or client.is_dead, seconds)

    def served(self, clients, seconds):
        """Until each has had the lock and left it; who has not by then hangs."""
        def is_served(client):
            return client.is_dead or (client.pending is None and not client.holds)
        if not self.until(lambda: all(map(is_served, clients)), seconds):
            for client in clients:
                if not is_served(client) and not client.is_dead:
                    self.ledger.hangs(client.name, client.pending or "?")
                    self.notes.append(f"{client.name} had no answer to `{client.pending}` after {seconds:.0f} s")

    def end(self):
        counts = self.ledger.counts(time.monotonic())
        for client in self.clients:
            client.kill()
        if self.proxy:
            self.proxy.close()
        return counts

    # replies

    def _step(self):
        try:
            at, client, line = self.inbox.get(timeout=STEP)
            self._hear(at, client, line)
        except queue.Empty:
            pass
        now = time.monotonic()
        for client in self.clients:
            if client.is_dead or client.is_stopped:
                continue
            is_bounded = client.pending is not None and (client.pending.split()[0] != "lock" or client.limit)
            if is_bounded and client.pending != "ready" and now - client.sent > client.limit + BOUND:
                self.ledger.hangs(client.name, client.pending)
                self.notes.append(f"{client.name} had no answer to `{client.pending}` in {BOUND:.0f} s")
                self.kill(client)
            elif client.pending is None and client.is_free:
                self._go_on(client)

    def _go_on(self, client):
        if client.pending is not None or client.is_dead or client.is_stopped:
            return
        now = time.monotonic()
        if client.holds and now >= client.release_at:
            client.holds, client.release_at = False, float("inf")
            self.ledger.unlock_sent(client.name, client.say("unlock"))
        elif client.holds and client.can_tell and self.probes and now - client.probed >= PROBE:
            client.probed = client.say("held?")
        elif client.asks_again and not client.holds and now >= client.again_at:
            client.say(f"lock {self.name}")

    def _hear(self, at, client, line):
        word, client.pending = (client.pending or "").split(" ")[0], None
        if line is None:
            if not client.is_dead:
                self.notes.append(f"{client.name} ended by itself, with {client.process.wait()}")
                client.is_dead = True
                self.ledger.died(client.name, at)
            return
        answer = line.split(" ")[0]
        if answer == "error":
            self._note(client, word, line)
        if word in ("lock", "try"):
            if answer == "granted":
                client.holds, client.asks_again = True, False
                client.release_at = at + client.hold
                self.ledger.granted(client.name, at)
            elif client.asks_again:
                client.again_at = at + (0.2 if answer == "error" else 0.0)
            else:
                self.ledger.gave_up(client.name, at)
        elif word == "held?" and answer != "unknown":
            if answer == "yes":
                self.ledger.said_yes(client.name, client.sent)
            else:  # it is lost, or the library can't say: a program stops here, and lets the lock go
                self.ledger.told(client.name, at)
                client.release_at = 0.0
        elif word == "held?":
            client.can_tell = False
        elif word == "unlock":
            self.ledger.unlock_said(client.name, answer)
        elif word == "stall":
            client.is_free = True

    def _note(self, client, word, line):
        note = f"{client.name} {word}: {line[6:160]}"
        if len(self.notes) < 6 and not any(note[:40] == earlier[:40] for earlier in self.notes):
            self.notes.append(note)
