"""Measures fairlock and the baselines with a server that is far away: bench/remote calls this.

    remote.py BUILD [--millis 0.2,1,5] [--rounds N] [--quick]
    remote.py BUILD --tasks [--millis 0,10] …        tasks beside threads

Without a delay the clients are beside the server. Else a process in between hands on the bytes later. What it adds itself is in the raw
figures as well: compare ratios.
"""

import argparse
import contextlib
import os
import statistics
import subprocess

from servers import Servers
from workloads import Scale, hand_off, many, uncontended

PEERS = ("fairlock", "rslock", "raw-setnx")
TASKS = ("fairlock", "fairlock-tasks", "fairlock-tasks-1", "rslock-tasks")  # threads; tasks, also on one thread


def millis(figure):
    return f"{figure / 1e3:.2f}"


def measure(servers, scale, rounds):
    """name → the figures of all rounds."""
    found = {}

    def add(name, figure):
        found.setdefault(name, []).append(figure)

    for turn in range(rounds):
        for peer in ("raw-ping", "raw-push", "fairlock"):
            add(f"{peer}: p50", uncontended(servers, scale, peer, None)["p50 µs"])
        for count in (2, 32):
            add(f"hand-off, {count} threads: p50", hand_off(servers, scale, "fairlock", count)["gap p50 µs"])
        for count in (1, 16, 256):
            for peer in PEERS if turn % 2 else reversed(PEERS):
                figures = many(servers, scale, peer, None, threads=count)
                for figure in ("ops/s", "p50 µs", "p99 µs", "connections"):
                    add(f"{count} {peer} {figure}", figures[figure])
    return {name: statistics.median(figures) for name, figures in found.items()}


def measure_tasks(servers, scale, rounds):
    """The figures of tasks and threads: name → peer → the median of all rounds."""
    found = {}

    def add(name, peer, figure):
        found.setdefault(name, {}).setdefault(peer, []).append(figure)

    for turn in range(rounds):
        add("PING, µs", "raw", uncontended(servers, scale, "raw-ping", None)["p50 µs"])
        for peer in TASKS if turn % 2 else reversed(TASKS):
            alone = many(servers, scale, peer, None, threads=1, mode="apart")
            add("cycle of one, µs", peer, alone["p50 µs"])
            add("its processor time, µs", peer, alone["client µs"])
            crowd = many(servers, scale, peer, None, threads=1000, mode="apart")
            add("1,000 on free locks, cycles/s", peer, crowd["ops/s"])
            if not peer.startswith("rslock"):
                add("hand-off of 32, µs", peer, hand_off(servers, scale, peer, 32)["gap p50 µs"])
    return {name: {peer: statistics.median(figures) for peer, figures in row.items()} for name, row in found.items()}


@contextlib.contextmanager
def far_away(servers, delay):
    """The server is so many milliseconds away."""
    if float(delay) == 0:
        yield
        return
    words = [f"{servers.build}/release/delay", str(servers.redis_port), str(int(float(delay) * 500))]
    network = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    near = servers.environment["BENCH_REDIS"]
    try:
        servers.environment["BENCH_REDIS"] = f"redis://127.0.0.1:{int(network.stdout.readline())}"
        yield
    finally:
        servers.environment["BENCH_REDIS"] = near
        network.kill()


def show_tasks(servers, scale, options):
    print("| ms a round trip | what | " + " | ".join(("raw", *TASKS)) + " |\n|" + " --- |" * (3 + len(TASKS)))
    for delay in (options.millis or "0,10").split(","):
        with far_away(servers, delay):
            found = measure_tasks(servers, scale, options.rounds)
        for name, row in found.items():
            cells = (f"{row[peer]:,.0f}" if peer in row else "" for peer in ("raw", *TASKS))
            print(f"| {delay} | {name} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(prog="bench/remote")
    parser.add_argument("build")
    parser.add_argument("--millis")
    parser.add_argument("--tasks", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    servers = Servers(os.path.abspath(options.build))
    scale = Scale(options.quick)
    rows, crowds = [], []
    try:
        if options.tasks:
            show_tasks(servers, scale, options)
            return
        for delay in (options.millis or "0.2,1,5").split(","):
            with far_away(servers, delay):
                found = measure(servers, scale, options.rounds)
            trips, push = 2 * found["raw-ping: p50"], found["raw-ping: p50"] + found["raw-push: p50"]
            row = [delay, millis(found["raw-ping: p50"]), millis(found["raw-push: p50"]), millis(found["fairlock: p50"]),
                   f"{found['fairlock: p50'] / trips:.2f}"]
            for count in (2, 32):
                gap = found[f"hand-off, {count} threads: p50"]
                row += [millis(gap), f"{gap / push:.2f}"]
            rows.append(row)
            for count in (1, 16, 256):
                for peer in PEERS:
                    ops, p50, p99, connections = (found[f"{count} {peer} {figure}"] for figure in
                                                  ("ops/s", "p50 µs", "p99 µs", "connections"))
                    crowds.append([delay, count, peer, f"{ops:,.0f}", f"{found[f'{count} fairlock ops/s'] / ops:.2f}",
                                   millis(p50), millis(p99), f"{connections:.0f}"])
    finally:
        servers.stop()
    print("| ms a round trip | PING, ms | push, ms | cycle, ms | ÷ two PINGs | hand-off, 2 threads, ms | ÷ (PING + push) "
          "| 32 threads, ms | ÷ (PING + push) |")
    print("|" + " --- |" * 9)
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print("\n| ms a round trip | threads | library | cycles/s | fairlock's ÷ its | p50, ms | p99, ms | connections |")
    print("|" + " --- |" * 8)
    for row in crowds:
        print("| " + " | ".join(map(str, row)) + " |")


if __name__ == "__main__":
    main()
