"""The server's cost of a hand-off against the length of the line, by the scripts alone: places have no threads.

The line keeps its length: the holder releases the lock, the next one gets it (with Redisson, by asking), and the former
holder asks again and goes to the tail.
"""

import os
import time

from redis_link import Link

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLIENT = "2f1c9c34-7a2e-4d0e-9f0a-000000000000"
HOUR = 3_600_000


def fairlock_script(name):
    """The script, joined as in fairlock-redis/src/scripts.rs."""
    folder = f"{ROOT}/fairlock-redis/scripts"
    with open(f"{folder}/{name}.lua") as file:
        own = file.read()
    parts = []
    for part in own.splitlines()[0].removeprefix("-- uses:").split():
        with open(f"{folder}/{part}.lua") as file:
            parts.append(file.read())
    return "".join(parts) + own


def seed_script(name):
    with open(f"{ROOT}/bench/seeds/{name}.lua") as file:
        return file.read()


def server_micros(link):
    return int(link.info("commandstats")["cmdstat_evalsha"].split("usec=")[1].split(",")[0])


class Fairlock:
    def __init__(self, link, port, name="bench:line"):
        self.link = link
        self.acquire, self.release = (link.ask("SCRIPT", "LOAD", fairlock_script(f"hand_off/{script}"))
                                      for script in ("acquire", "release"))
        self.name = name
        self.keys = [self.name, *(f"fairlock_{key}:{{{self.name}}}" for key in ("queue", "places", "token"))]
        self.ear = Link(port)
        self.ear.ask("SUBSCRIBE", f"fairlock:{CLIENT}")
        self.request = 0

    def ask(self, owner):
        self.request += 1
        return ("EVALSHA", self.acquire, 4, *self.keys, f"{CLIENT}:{owner}", f"{self.request:016x}", 30_000, HOUR,
                "wait", "", 1, "fairlock:", self.name, f"redisson_lock_queue:{{{self.name}}}")

    def cost(self):
        before = server_micros(self.link)
        self.hand_off()
        return server_micros(self.link) - before

    def fill(self, places):
        granted = self.link.ask(*self.ask(0))
        self.holder = (0, f"{self.request:016x}", granted[1])
        self.link.pipeline([self.ask(n) for n in range(1, places + 1)])

    def hand_off(self):
        owner, request, token = self.holder
        self.link.ask("EVALSHA", self.release, 4, *self.keys, f"{CLIENT}:{owner}", request, token, 1, "fairlock:",
                      self.name, "", "", "", "")
        # Both lines of `compare` have the same client, which receives the grants of both.
        told = self.ear.receive()[2].split(" ", 4)
        while told[4] != self.name:
            told = self.ear.receive()[2].split(" ", 4)
        _, next_owner, next_request, next_token, _ = told
        self.holder = (next_owner, next_request, next_token)
        self.link.ask(*self.ask(owner))

    def close(self):
        self.ear.close()


class Seeds:
    """The scripts of Redisson 3.16.8, called as Redisson does."""

    def __init__(self, link, _):
        self.link = link
        self.acquire, self.release = (link.ask("SCRIPT", "LOAD", seed_script(f"{name}_3_16"))
                                      for name in ("acquire", "release"))
        name = "bench:line"
        self.keys = [name, f"redisson_lock_queue:{{{name}}}", f"redisson_lock_timeout:{{{name}}}"]
        self.channel = f"redisson_lock__channel:{{{name}}}"

    def ask(self, owner):
        return ("EVALSHA", self.acquire, 3, *self.keys, 30_000, f"{CLIENT}:{owner}", 300_000, self.now())

    @staticmethod
    def now():
        return int(time.time() * 1000)

    def fill(self, places):
        self.places, self.holder = places, 0
        self.link.pipeline([self.ask(n) for n in range(places + 1)])

    def hand_off(self):
        self.link.ask("EVALSHA", self.release, 4, *self.keys, self.channel, 0, 30_000, f"{CLIENT}:{self.holder}",
                      self.now())
        former, self.holder = self.holder, (self.holder + 1) % (self.places + 1)
        if self.link.ask(*self.ask(self.holder)) is not None:
            raise SystemExit("the first in line did not get the lock")
        self.link.ask(*self.ask(former))

    def close(self):
        pass


def line_cost(servers, peer, places):
    link = servers.link()
    link.ask("FLUSHALL")
    system = {"fairlock": Fairlock, "seeds 3.16": Seeds}[peer](link, servers.redis_port)
    system.fill(places)
    times = []
    end = time.monotonic() + 8
    for _ in range(500):
        before = server_micros(link)
        system.hand_off()
        times.append(server_micros(link) - before)
        if time.monotonic() > end:
            break
    system.close()
    link.ask("FLUSHALL")
    link.close()
    times.sort()
    return {"server µs": times[len(times) // 2], "server p99 µs": times[len(times) * 99 // 100],
            "hand-offs": len(times)}


def compare(servers, short, long):
    """The cost of a hand-off in a long line divided by that in a short one, measured in turns."""
    link = servers.link()
    link.ask("FLUSHALL")
    lines = [Fairlock(link, servers.redis_port, f"bench:line{places}") for places in (short, long)]
    for line, places in zip(lines, (short, long)):
        line.fill(places)
    costs = [sorted(times) for times in zip(*([line.cost() for line in lines] for _ in range(1000)))]
    for line in lines:
        line.close()
    link.ask("FLUSHALL")
    link.close()
    return costs[1][500] / costs[0][500]
