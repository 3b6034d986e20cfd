"""Libraries with known faults, for the judge's own test: `planted.py KIND`. They need no server, only a folder.

`right` has none: a queue of process ids in a file. The other kinds each have the fault that they are named for.
"""

import fcntl
import os
import sys
import time

from words import run, setting

KIND = sys.argv[1]


class Planted:
    def __init__(self):
        self.file = open(os.path.join(setting("TORTURE_ADDRESS"), "queue"), "a+")

    def _queue(self, change=lambda queue: queue):
        """The living processes, after a change."""
        fcntl.flock(self.file, fcntl.LOCK_EX)
        self.file.seek(0)
        before = list(map(int, self.file.read().split()))
        queue = change([pid for pid in before if lives(pid)])
        if queue != before:
            self.file.truncate(0)
            self.file.write(" ".join(map(str, queue)))
            self.file.flush()
        fcntl.flock(self.file, fcntl.LOCK_UN)
        return queue

    def lock(self, name, limit):
        me, since = os.getpid(), time.monotonic()
        place = 1 if KIND == "overtakes" else None
        self._queue(lambda queue: queue + [me] if place is None else queue[:place] + [me] + queue[place:])
        while self._queue()[0] != me:
            if limit and time.monotonic() - since > limit:
                self._queue(lambda queue: [pid for pid in queue if pid != me])
                return "timeout"
            if KIND in ("overlaps", "loses-silently") and time.monotonic() - since > 0.5:
                break
            time.sleep(0.01)
        if KIND == "idles":
            time.sleep(2)
        return "granted"

    def attempt(self, name):
        return self.lock(name, 0.001).replace("timeout", "busy")

    def is_held(self):
        if KIND == "overlaps":
            return "unknown"  # nothing tells of the loss before the release
        return "yes"

    def unlock(self):
        self._queue(lambda queue: [pid for pid in queue if pid != os.getpid()])
        if KIND == "hangs":
            time.sleep(3600)
        return "lost" if KIND == "overlaps" else "ok"


def lives(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


run(Planted())
