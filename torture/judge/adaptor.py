"""One client: a process that speaks six words. torture/README.md has the protocol."""

import os
import shutil
import signal
import subprocess
import threading
import time


# Where Linux can, a process ends with the judge.
BOUND_TO_JUDGE = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


class Client:
    """Its lines arrive in `inbox` as (time, client, line), with None for the end of the process."""

    def __init__(self, name, command, environment, inbox, log):
        self.name, self.inbox = name, inbox
        self.process = subprocess.Popen([*BOUND_TO_JUDGE, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                        env={**os.environ, **environment})
        self.pending = "ready"  # the word that it has not answered
        self.sent = self.probed = time.monotonic()
        self.limit = 0.0  # how long the word itself takes
        self.holds = False
        self.release_at = float("inf")
        self.hold = float("inf")  # seconds from grant to release
        self.asks_again = False  # a `lock` without limit that the library ended is repeated
        self.again_at = 0.0
        self.is_free = True  # between two words of a scene the judge may ask it by itself
        self.can_tell = True  # it has an answer to `held?`
        self.is_stopped = self.is_dead = False
        self.notes: "list[str]" = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.inbox.put((time.monotonic(), self, line.strip()))
        self.inbox.put((time.monotonic(), self, None))

    def say(self, line, limit=0.0):
        """Returns the moment just before the word left."""
        assert self.pending is None, f"{self.name} has not answered {self.pending}"
        self.pending, self.sent, self.limit = line, time.monotonic(), limit
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # its end is on the way
        return self.sent

    def signal(self, number):
        try:
            os.kill(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        self.is_dead = True
        self.signal(signal.SIGKILL)
        self.process.wait()
