"""The server's cost of a hand-off against the length of the queue, by the scripts alone: places have no threads.

The queue keeps its length: the holder releases the lock, the next one gets it (with Redisson, by asking), and the former
holder asks again and goes to the tail.
"""

import os
import re
import statistics
import subprocess
import time

from watch import script_micros
from workers import Worker

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLIENT = "2f1c9c34-7a2e-4d0e-9f0a-000000000000"
BATCH = 20  # steps


def seed_script(name):
    with open(f"{ROOT}/bench/seeds/{name}.lua") as file:
        return file.read()


class Fairlock:
    """The worker does the steps by the interface of the backend."""

    def __init__(self, servers, places, build=None, mode="steps"):
        self.worker = Worker(servers, "fairlock", mode, count=places, build=build)
        self.worker.expect("ready")

    def step(self, times):
        self.worker.go(times)
        self.worker.expect("did")

    def close(self):
        self.worker.kill()


class Seeds:
    """The scripts of Redisson 3.16.8, called as Redisson does."""

    def __init__(self, servers, places):
        self.link = link = servers.link()
        self.acquire, self.release = (link.ask("SCRIPT", "LOAD", seed_script(f"{name}_3_16"))
                                      for name in ("acquire", "release"))
        name = "bench:queue"
        self.keys = [name, f"redisson_lock_queue:{{{name}}}", f"redisson_lock_timeout:{{{name}}}"]
        self.channel = f"redisson_lock__channel:{{{name}}}"
        self.places, self.holder = places, 0
        self.link.pipeline([self.ask(n) for n in range(places + 1)])

    def ask(self, owner):
        return ("EVALSHA", self.acquire, 3, *self.keys, 30_000, f"{CLIENT}:{owner}", 300_000, self.now())

    @staticmethod
    def now():
        return int(time.time() * 1000)

    def step(self, times):
        for _ in range(times):
            self.hand_off()

    def hand_off(self):
        self.link.ask("EVALSHA", self.release, 4, *self.keys, self.channel, 0, 30_000, f"{CLIENT}:{self.holder}",
                      self.now())
        former, self.holder = self.holder, (self.holder + 1) % (self.places + 1)
        if self.link.ask(*self.ask(self.holder)) is not None:
            raise SystemExit("the first in the queue did not get the lock")
        if self.places:
            self.link.ask(*self.ask(former))

    def close(self):
        self.link.close()


class Meter:
    """The server time of the scripts of one step, by INFO commandstats."""

    def __init__(self, servers):
        self.link = servers.link()
        self.link.ask("FLUSHALL")

    def cost(self, queue, times):
        before = script_micros(self.link.info("commandstats"))
        queue.step(times)
        return (script_micros(self.link.info("commandstats")) - before) / times

    def close(self):
        self.link.ask("FLUSHALL")
        self.link.close()


class Instructions(Meter):
    """The instructions of the server for one step, its commands and round trips included: for a server under callgrind."""

    def __init__(self, servers):
        super().__init__(servers)
        self.servers, self.process = servers, servers.processes["redis"].pid
        self.dumps = 0

    def dump(self):
        """Counts since the last one."""
        subprocess.run(["callgrind_control", "--dump", str(self.process)], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        dumps = [name for name in os.listdir(self.servers.folder) if re.fullmatch(r"callgrind\.\d+", name)]
        newest = max(dumps, key=lambda name: int(name.split(".")[1]))
        with open(f"{self.servers.folder}/{newest}") as file:
            return int(re.findall(r"^(?:totals|summary): (\d+)", file.read(), re.M)[-1])

    def cost(self, queue, times):
        times *= 10  # its timers run in between
        queue.step(times)
        self.dump()
        queue.step(times)
        return self.dump() / times


def queue_cost(servers, peer, places):
    meter = Meter(servers)
    queue = {"fairlock": Fairlock, "redisson 3.16": Seeds}[peer](servers, places)
    costs = []
    start = time.monotonic()
    while len(costs) < 500 and time.monotonic() < start + 8:
        costs.append(meter.cost(queue, 1))
    # INFO itself disturbs the server's caches: the median is that of batches, unless they would take too long.
    quick = time.monotonic() < start + 3
    batches = [meter.cost(queue, BATCH) for _ in range(50)] if quick else costs
    queue.close()
    meter.close()
    costs.sort()
    return {"server µs": statistics.median(batches), "server p99 µs": costs[len(costs) * 99 // 100],
            "hand-offs": len(costs)}


def compare(servers, queues, batches=50):
    """The cost of a step in each of the queues, (places, build) and a mode of bench/src/steps.rs, measured in turns."""
    meter = (Instructions if servers.counts_instructions else Meter)(servers)
    queues = [Fairlock(servers, *queue) for queue in queues]
    costs = [[] for _ in queues]
    for batch in range(batches):
        pairs = list(zip(queues, costs))
        for queue, found in pairs if batch % 2 else reversed(pairs):
            found.append(meter.cost(queue, BATCH))
    for queue in queues:
        queue.close()
    meter.close()
    return [statistics.median(found) for found in costs]
