"""Runs the workloads, in turns, and writes down every figure: bench/run calls this.

    main.py BUILD [--quick] [--rounds N] [--only 1,3] [--peers fairlock,redisson-fair] [--add] [--out FILE]

--add: what is measured is added to what FILE has, instead of that.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import time

from against import allocations_of, client_instructions
from servers import Servers

from workloads import MOST_ROUNDS, REFUSALS, WORKLOADS, Scale


def write(path, result):
    """Called after each workload, so that an interrupted run keeps its results."""
    with open(path, "w") as file:
        json.dump(result, file, indent=0, ensure_ascii=False)


def load():
    return [round(part, 2) for part in os.getloadavg()]


def machine():
    def said(*command):
        return subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines()[0]

    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?")
    return {
        "date": datetime.date.today().isoformat(),
        "processor": f"{model}, {os.cpu_count()} cores",
        "kernel": platform.release(),
        "redis": said("redis-server", "--version").split(" sha=")[0],
        "rustc": said("rustc", "--version"),
        "commit": said("git", "rev-parse", "--short", "HEAD"),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--peers", default="")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    only = {int(number) for number in options.only.split(",") if number}
    peers_wanted = set(options.peers.split(",")) - {""}

    scale, servers = Scale(options.quick), Servers(os.path.abspath(options.build))
    figures, missing, started = [], [], time.monotonic()
    there = {"etcd": servers.start_etcd(), "curator": servers.start_zookeeper(), "postgres": servers.start_postgres()}
    servers.start_sentinels()
    result = {"machine": machine(), "quick": options.quick, "rounds": options.rounds, "load before": load(),
              "missing": missing, "figures": figures}
    if options.add:
        with open(options.out) as file:
            before = json.load(file)
        figures += before["figures"]
        missing += before["missing"]
        for name in ("machine", "quick", "rounds", "load before"):
            result[name] = before[name]
        started -= before["seconds"]
    try:
        result["allocations"] = allocations_of(servers, servers.build)
        if shutil.which("valgrind"):
            result["client instructions"] = client_instructions(servers, servers.build)
        for turn in range(options.rounds):
            for number, name, function, variants, peers in WORKLOADS:
                if (only and number not in only) or turn >= MOST_ROUNDS.get(name, options.rounds):
                    continue
                result["load after"] = load()
                result["seconds"] = round(time.monotonic() - started)
                write(options.out, result)
                for variant in variants:
                    if number == 5 and variant not in scale.line:
                        continue
                    for peer in peers:
                        if (peers_wanted and peer not in peers_wanted) or not there.get(peer.split("-")[0], True):
                            continue
                        try:
                            got = function(servers, scale, peer, variant)
                        except REFUSALS as trouble:
                            missing.append([number, name, variant, peer, turn, str(trouble)])
                            print(f"! {name} {variant} {peer}: {trouble}", file=sys.stderr, flush=True)
                            got = None
                        # Leftovers of a killed worker must not affect the next one.
                        link = servers.link()
                        link.ask("FLUSHALL")
                        link.close()
                        if got is None:
                            continue
                        figures.append({"number": number, "workload": name, "variant": variant, "peer": peer,
                                        "round": turn, "figures": got})
                        short = {key: round(value, 2) for key, value in list(got.items())[:4] if value is not None}
                        print(f"{time.monotonic() - started:6.0f} s  {name} {variant or ''} {peer}: {short}", flush=True)
        result["load after"] = load()
        result["seconds"] = round(time.monotonic() - started)
        write(options.out, result)
    finally:
        servers.stop()


main()
