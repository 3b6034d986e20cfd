"""Measures fairlock and the baselines with a server that is far away: bench/remote calls this.

    remote.py BUILD [--millis 0.2,1,5] [--rounds N] [--quick]

A process between clients and server hands on their bytes later. What it adds itself is in the raw figures as well: compare ratios.
"""

import argparse
import os
import statistics
import subprocess

from servers import Servers
from workloads import Scale, hand_off, many, uncontended

PEERS = ("fairlock", "rslock", "raw-setnx")


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


def main():
    parser = argparse.ArgumentParser(prog="bench/remote")
    parser.add_argument("build")
    parser.add_argument("--millis", default="0.2,1,5")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    servers = Servers(os.path.abspath(options.build))
    scale = Scale(options.quick)
    rows, crowds = [], []
    try:
        for delay in options.millis.split(","):
            words = [f"{options.build}/release/delay", str(servers.redis_port), str(int(float(delay) * 500))]
            network = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            try:
                servers.environment["BENCH_REDIS"] = f"redis://127.0.0.1:{int(network.stdout.readline())}"
                found = measure(servers, scale, options.rounds)
            finally:
                network.kill()
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
