"""Libraries with known faults, for the judge's own test: `planted.py KIND`. They need no server, only a folder.

`right` has none: a queue of process ids in a file. The other kinds each have the fault that they are named for.
"""

import fcntl
import os
import sys
import time

from words import run, setting

KIND, ME = sys.argv[1], os.getpid()


class Planted:
    def _queue(self, change=lambda queue: queue):
        """The living processes, after a change."""
        with open(os.path.join(setting("TORTURE_ADDRESS"), "queue"), "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
            file.seek(0)
            before = list(map(int, file.read().split()))
            queue = change([pid for pid in before if lives(pid)])
            if queue != before:
                file.truncate(0)
                file.write(" ".join(map(str, queue)))
        return queue

    def lock(self, name, limit):  # the test sets no limit, and says no `try`
        since = time.monotonic()
        behind = 1 if KIND == "overtakes" else sys.maxsize
        self._queue(lambda queue: [*queue[:behind], ME, *queue[behind:]])
        while self._queue()[0] != ME:
            if KIND in ("overlaps", "loses-silently") and time.monotonic() - since > 0.5:
                break
            time.sleep(0.01)
        if KIND == "idles":
            time.sleep(2)
        return "granted"

    def is_held(self):
        return "unknown" if KIND == "overlaps" else "yes"

    def unlock(self):
        self._queue(lambda queue: [pid for pid in queue if pid != ME])
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
