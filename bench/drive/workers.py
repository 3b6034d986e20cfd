"""Starts a peer's worker and talks to it. The worker says `ready`, waits for a line, works, and prints its results.

| mode | work | output |
| --- | --- | --- |
| uncontended | lock and unlock, alone | `ns` and the time of each cycle |
| reentry | the same inside a hold | the same |
| turns | COUNT threads take turns and hold for HOLD_MS | `e thread asked granted leaving`, in ns since 1970; `done`, and the grants by polling if known |
| hold | takes the lock, waits for a line, releases it | `granted ns`, `released ns` (the start of the release) |
| idle | holds the lock, and COUNT threads wait without limit | |
| many | COUNT threads lock and unlock 10,000 names | `ops n`; in Rust also the p50 and the p99 of a cycle, in ns |
| apart | COUNT threads or tasks with a name each | the same |
| locked rows | fairlock on PostgreSQL: free locks, one after the other, while COUNT threads ask at rows that are locked | the same |
| renew | in Rust: takes COUNT locks and keeps them | |
| steps | in a queue of COUNT places, as many hand-offs as each line that it reads says; with none, cycles | `did` after each line |
"""

import itertools
import os
import queue
import subprocess
import threading

LIMIT = 180  # seconds that a worker may take for one line


class Stuck(Exception):
    pass


numbers = itertools.count(1)


def new_name():
    return f"bench:{next(numbers)}"


class Worker:
    def __init__(self, servers, peer, mode, name=None, count=1, seconds=1.0, hold=0, lease=30000, warm=0.5, flags=(),
                 build=None):
        # A new name: a killed worker may still hold the old one.
        words = [peer, mode, name or new_name(), count, seconds, hold, lease, warm]
        command = program(build or servers.build, peer, flags) + [str(word) for word in words]
        self.what = " ".join(map(str, words))
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=servers.environment)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def hear(self, limit=LIMIT):
        try:
            line = self.lines.get(timeout=limit)
        except queue.Empty:
            raise Stuck(f"{self.what}: nothing said in {limit} s") from None
        if line is None:
            raise Stuck(f"{self.what}: ended with {self.process.wait()}")
        return line

    def expect(self, word, limit=LIMIT):
        line = self.hear(limit)
        if not line.startswith(word):
            raise Stuck(f"{self.what}: said {line!r}, not {word}")
        return line

    def go(self, line=""):
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def events(self):
        events = []
        while not (line := self.hear()).startswith("done"):
            events.append(tuple(map(int, line.split()[1:])))
        self.polled = int(line.split()[1]) if line != "done" else None
        return events

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connections(self):
        """The TCP connections of the process, to any server."""
        folder, sockets = f"/proc/{self.process.pid}/fd", set()
        for descriptor in os.listdir(folder):
            try:
                sockets.add(os.readlink(f"{folder}/{descriptor}"))
            except FileNotFoundError:  # closed in between
                pass
        established = 0
        for table in ("tcp", "tcp6"):
            with open(f"/proc/net/{table}") as rows:
                for words in map(str.split, rows):
                    established += words[3] == "01" and f"socket:[{words[9]}]" in sockets
        return established

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def program(build, peer, flags):
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if peer.startswith(("redisson", "curator")):
        return ["java", *flags, "-cp", f"{build}/java/classes:{build}/java/lib/*", "fairlock.bench.Worker"]
    if peer in ("python-redis-lock", "redis-py"):
        return [f"{build}/venv/bin/python", f"{here}/peers/python/worker.py"]
    if peer in ("bsm-redislock", "redsync", "etcd"):
        return [f"{build}/peers-go"]
    return [f"{build}/release/worker"]
