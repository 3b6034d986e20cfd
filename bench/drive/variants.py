"""Throw-away: pool, combining and pipelining by turns. variants.py BUILD ROUNDS OUT"""

import json
import os
import sys
import time

from servers import Servers
from watch import Usage
from workers import Worker, new_name
from workloads import percentile, turns_figures

VARIANTS = {
    "combining, 1 lane": {"FAIRLOCK_LANES": "1"},
    "combining, 2 lanes": {"FAIRLOCK_LANES": "2"},
    "combining, 4 lanes": {"FAIRLOCK_LANES": "4"},
    "pool of 16": {"FAIRLOCK_VARIANT": "pool"},
    "pipelining, callers read": {"FAIRLOCK_VARIANT": "pipe"},
    "pipelining, callers read, a fair mutex": {"FAIRLOCK_VARIANT": "pipe-fair"},
    "pipelining, a thread reads": {"FAIRLOCK_VARIANT": "pipe-thread"},
}
SECONDS = 0.8
QUIET = 0.10  # what other programs may take of the machine meanwhile; more, and it is measured again


def machine():
    """Processor seconds that anybody used since the start."""
    with open("/proc/stat") as stat:
        words = [int(word) for word in stat.readline().split()[1:9]]
    return (sum(words) - words[3] - words[4]) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(limit):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        before = machine()
        time.sleep(0.25)
        if machine() - before < 0.25 * 2 * QUIET:
            return


def quiet(servers, mode, count):
    """Measured again while others are at work; the most quiet one counts."""
    tried = []
    for _ in range(4):
        wait_for_quiet(15)
        tried.append(measure(servers, mode, count))
        if tried[-1]["others"] < QUIET:
            break
    return min(tried, key=lambda figures: figures["others"])


def order(turn):
    """Each round begins with another one, so that none always follows the same."""
    all_of_them = list(VARIANTS.items())
    first = turn % len(all_of_them)
    return all_of_them[first:] + all_of_them[:first]


def measure(servers, mode, count):
    with Worker(servers, "fairlock", mode, new_name(), count=count, seconds=SECONDS, warm=0.2) as worker:
        worker.expect("ready")
        link = servers.link()
        with Usage(servers) as usage:
            before, mine, all_before, start = worker.cpu_seconds(), time.process_time(), machine(), time.monotonic()
            worker.go()
            time.sleep(SECONDS / 2)
            connections = int(link.info("clients")["connected_clients"]) - 2
            if mode == "turns":
                first = worker.expect("e")
                after, mine, all_after, took = (worker.cpu_seconds(), time.process_time() - mine, machine(),
                                                time.monotonic() - start)
                events = [tuple(map(int, first.split()[1:])), *worker.events()]
                found, ops = turns_figures(events), len(events)
                rate, p50, p99 = found["hand-offs/s"], found["gap p50 µs"], found["gap p99 µs"]
            else:
                words = worker.expect("ops" if mode == "many" else "ns").split()[1:]
                took = time.monotonic() - start
                after, mine, all_after = worker.cpu_seconds(), time.process_time() - mine, machine()
                if mode == "many":
                    ops, p50, p99 = int(words[0]), int(words[1]) / 1e3, int(words[2]) / 1e3
                else:
                    times = [int(word) / 1e3 for word in words]
                    ops, p50, p99 = len(times), percentile(times, 0.5), percentile(times, 0.99)
                rate = ops / SECONDS
        link.close()
    figures = {"ops/s": rate, "p50": p50, "p99": p99, "connections": connections,
               "server µs": usage.change["cpu"] * 1e6 / ops, "client µs": (after - before) * 1e6 / ops}
    others = all_after - all_before - mine - (after - before) - usage.change["cpu"]
    return {**figures, "others": others / took / os.cpu_count()}


def main():
    build, rounds, out = os.path.abspath(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    servers = Servers(build)
    found = []
    try:
        for turn in range(rounds):
            for mode, count in (("many", 16), ("uncontended", 1), ("turns", 8), ("turns", 32)):
                for variant, settings in order(turn):
                    for name in ("FAIRLOCK_VARIANT", "FAIRLOCK_LANES"):
                        servers.environment.pop(name, None)
                    servers.environment.update(settings)
                    got = quiet(servers, mode, count)
                    found.append({"round": turn, "workload": f"{mode} {count}", "variant": variant, **got,
                                  "load": os.getloadavg()[0]})
                    print(turn, mode, count, variant, {k: round(v, 2) for k, v in got.items()}, flush=True)
                    link = servers.link()
                    link.ask("FLUSHALL")
                    link.close()
            with open(out, "w") as file:
                json.dump(found, file)
    finally:
        servers.stop()


main()
