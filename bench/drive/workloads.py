"""The workloads: each measures one peer at a time, and returns its figures by name."""

import subprocess
import time

from queue_cost import compare, queue_cost
from redis_link import Refused
from watch import Commands, PostgresUsage, Usage
from workers import Stuck, Worker, new_name

ON_JAVA = ("redisson-fair", "redisson", "curator")
RAW = ("raw-ping", "raw-setnx", "raw-scripts", "raw-push")
SETTERS = ("raw-setnx", "python-redis-lock", "redis-py", "redsync", "rslock", "rslock-tasks")  # these take the lock with SET
ELSEWHERE = ("etcd", "curator")  # not on Redis, so that its statistics don't apply
NEAR_ALL = ("fairlock", "redisson-fair", "redisson", "python-redis-lock", "redis-py", "bsm-redislock", "redsync",
            "rslock", "async-redis-lock", "distkit", "etcd", "curator")


class Scale:
    """The sizes of the workloads; `--quick` is for checking that all works."""

    def __init__(self, quick):
        self.seconds = 0.4 if quick else 1.2
        self.processes = 6 if quick else 48
        self.process_seconds = 3 if quick else 24
        self.line = (0, 8, 10, 1000) if quick else (0, 8, 10, 100, 1000, 10_000, 100_000)
        self.holds = 200 if quick else 10_000
        self.watch = 4 if quick else 8
        self.quick = quick

    def warm(self, peer):
        """Longer for Java, which compiles while it runs."""
        return (0.5 if self.quick else 2.5) if peer.startswith(ON_JAVA) else 0.2


def percentile(times, part):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * part))] if times else None


def usage_of(servers, peer):
    return PostgresUsage(servers) if peer.startswith("postgres-") else Usage(servers)


def wire(servers, peer, usage, cycles):
    if peer in ELSEWHERE:
        return {}
    change = usage.change
    if peer.startswith("postgres-"):
        return {"server µs": change["cpu"] * 1e6 / cycles}
    return {
        "bytes in": change["bytes in"] / cycles,
        "bytes out": change["bytes out"] / cycles,
        "server µs": change["cpu"] * 1e6 / cycles,
        "script µs": (change["script µs"] + (change["SET µs"] if peer in SETTERS else 0)) / cycles,
    }


def cycles(servers, scale, peer, mode, build=None):
    with Worker(servers, peer, mode, seconds=scale.seconds, warm=scale.warm(peer), build=build) as worker:
        worker.expect("ready")
        with usage_of(servers, peer) as usage:
            worker.go()
            times = [int(word) / 1e3 for word in worker.expect("ns").split()[1:]]
        return {"p50 µs": percentile(times, 0.5), "p99 µs": percentile(times, 0.99),
                **wire(servers, peer, usage, len(times))}


def uncontended(servers, scale, peer, _, build=None):
    return cycles(servers, scale, peer, "uncontended", build)


def reentry(servers, scale, peer, _):
    return cycles(servers, scale, peer, "reentry")


def uncontended_commands(servers, scale, peer, _):
    with Worker(servers, peer, "uncontended", seconds=0.5, warm=scale.warm(peer) / 2) as worker:
        worker.expect("ready")
        with Commands(servers) as commands:
            worker.go()
            grants = len(worker.expect("ns").split()) - 1
    return per_turn(commands, grants)


def per_turn(commands, turns):
    figures = {"commands": sum(commands.counts.values()) / turns}
    for name, count in commands.counts.most_common(4):
        if count / turns >= 0.02:
            figures[f"command {name}"] = count / turns
    return figures


def turns_figures(events):
    """A hand-off is a turn of another owner than before."""
    events = sorted(events, key=lambda event: event[2])
    pairs = [(a, b) for a, b in zip(events, events[1:]) if a[0] != b[0]]
    gaps = [(b[2] - a[3]) / 1e3 for a, b in pairs if b[1] < a[3]]
    seconds = (events[-1][2] - events[0][2]) / 1e9 if len(events) > 1 else 0
    return {
        "hand-offs/s": len(pairs) / seconds if seconds else 0,
        "turns/s": (len(events) - 1) / seconds if seconds else 0,
        "gap p50 µs": percentile(gaps, 0.5),
        "gap p99 µs": percentile(gaps, 0.99),
    }


def hand_off(servers, scale, peer, waiters, build=None):
    """Threads of one process that always want the lock, and hold it for no time."""
    with Worker(servers, peer, "turns", count=waiters, seconds=scale.seconds, warm=scale.warm(peer),
                build=build) as worker:
        worker.expect("ready")
        with usage_of(servers, peer) as usage:
            worker.go()
            events = worker.events()
    return {**turns_figures(events), **wire(servers, peer, usage, len(events)), "grants by polling": worker.polled}


def hand_off_commands(servers, scale, peer, waiters):
    with Worker(servers, peer, "turns", count=waiters, seconds=1, warm=scale.warm(peer) / 2) as worker:
        worker.expect("ready")
        with Commands(servers) as commands:
            worker.go()
            events = worker.events()
    figures = per_turn(commands, len(events))
    owners = [event[0] for event in sorted(events, key=lambda event: event[2])]
    hand_offs = sum(1 for one, next_one in zip(owners, owners[1:]) if one != next_one)
    return {**figures, "commands a hand-off": sum(commands.counts.values()) / max(1, hand_offs)}


# A minimal JVM per process, since many of them run at a time.
SMALL_JAVA = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
SLACK = 2_000_000  # ns between the requests of two processes: below this, their order at the server is unknown


def processes(servers, scale, peer, _):
    """Many processes, one client and one thread each, 10 ms hold."""
    workers, name = [], new_name()
    try:
        for _ in range(scale.processes):
            workers.append(Worker(servers, peer, "turns", name, seconds=scale.process_seconds, hold=10, warm=0.01,
                                  flags=SMALL_JAVA))
            if peer in ON_JAVA and len(workers) % 6 == 0:
                workers[-1].expect("ready")
                workers[-1].is_ready = True
        for worker in workers:
            if not hasattr(worker, "is_ready"):
                worker.expect("ready")
        for worker in workers:
            worker.go()
        events = [(n, *event[1:]) for n, worker in enumerate(workers) for event in worker.events()]
    finally:
        for worker in workers:
            worker.kill()
    # Waiters still get their turn after the end; only the time in which all want the lock counts.
    start = max(min(e[1] for e in events if e[0] == n) for n in {e[0] for e in events})
    end = min(e[1] for e in events) + scale.process_seconds * 1e9
    counted = sorted((e for e in events if start <= e[2] <= end), key=lambda e: e[2])
    grants = [sum(1 for e in counted if e[0] == n) for n in range(scale.processes)]
    overtakers, latest_asked = 0, 0
    # Backwards: a later grant of an earlier request.
    earliest = None
    for event in reversed(counted):
        if earliest is not None and earliest < event[1] - SLACK:
            overtakers += 1
        earliest = event[1] if earliest is None else min(earliest, event[1])
    figures = turns_figures(counted)
    figures.update({
        "grants a client, fewest": min(grants),
        "grants a client, most": max(grants),
        "max/min": max(grants) / min(grants) if min(grants) else float("inf"),
        "overtaking grants": overtakers,
        "overtaking share": overtakers / max(1, len(counted)),
        "grants": sorted(grants),
    })
    return figures


def crowd(servers, scale, build=None, peer="fairlock", count=8, seconds=None, hold=0):
    """Processes with one thread each that always want the lock, and hold it for no time, or so many milliseconds."""
    name, workers = new_name(), []
    try:
        for _ in range(count):
            workers.append(Worker(servers, peer, "turns", name, seconds=seconds or scale.seconds, hold=hold, warm=0.05, build=build,
                                  flags=SMALL_JAVA))
        for worker in workers:
            worker.expect("ready")
        for worker in workers:
            worker.go()
        events = [(n, *event[1:]) for n, worker in enumerate(workers) for event in worker.events()]
    finally:
        for worker in workers:
            worker.kill()
    return turns_figures(events)


def line(servers, scale, peer, places):
    return queue_cost(servers, peer, places)


def many(servers, scale, peer, _, build=None, threads=16, mode="many"):
    """Threads of one process over 10,000 names; or, `apart`, with a name each."""
    with Worker(servers, peer, mode, count=threads, seconds=scale.seconds, warm=scale.warm(peer), build=build) as worker:
        worker.expect("ready")
        with usage_of(servers, peer) as usage:
            before = worker.cpu_seconds()
            worker.go()
            time.sleep(scale.seconds / 2)
            connections = worker.connections()
            ops, *times = map(int, worker.expect("ops").split()[1:])
            cpu = worker.cpu_seconds() - before
    return {"ops/s": ops / scale.seconds, "connections": connections, "client µs": cpu * 1e6 / ops,
            **dict(zip(("p50 µs", "p99 µs"), (time / 1e3 for time in times))), **wire(servers, peer, usage, ops)}


def one_alone(servers, scale, peer, _):
    """A single thread or task on a free lock."""
    return many(servers, scale, peer, None, threads=1, mode="apart")


RENEW_LEASE = 6000  # three rounds of renewals in the time of watching


def renewal_usage(servers, scale, worker):
    """The client's and the server's processor time of renewals, as parts of the time."""
    worker.expect("ready")
    with Usage(servers) as usage:
        before = worker.cpu_seconds()
        time.sleep(scale.watch)
        after = worker.cpu_seconds()
    return usage, {"client cpu %": (after - before) / scale.watch * 100,
                   "server cpu %": usage.change["cpu"] / scale.watch * 100}


def files(servers, scale, _peer, __):
    lines = subprocess.run([f"{servers.build}/release/worker", "file", "1"], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    return {f"{what} {lock}": float(value) for what, lock, value in map(str.split, lines)}


RECOVERY_LEASE = 3000
PATIENCE = 20  # seconds; a slower recovery is recorded as this


def first_grant(worker, since):
    try:
        return (int(worker.expect("granted", PATIENCE).split()[1]) - since) / 1e9
    except Stuck:
        return float(PATIENCE)


def recovery(servers, scale, peer, what):
    """Three accidents; the time until the next grant."""
    name = new_name()
    holder, second, third = (Worker(servers, peer, "hold", name=name, lease=RECOVERY_LEASE) for _ in range(3))
    with holder, second, third:
        for worker in (holder, second, third):
            worker.expect("ready")
        holder.go()
        holder.expect("granted")
        second.go()
        time.sleep(0.7)
        if what == "holder killed":
            at = time.time_ns()
            holder.kill()
            return {"seconds": first_grant(second, at)}
        if what == "waiter killed":
            third.go()
            time.sleep(0.7)
            second.kill()
            time.sleep(0.1)
            holder.go()
            at = int(holder.expect("released").split()[1])
            return {"seconds": first_grant(third, at)}
        link = servers.link()
        link.ask("CLIENT", "KILL", "TYPE", "pubsub")
        link.close()
        holder.go()
        at = int(holder.expect("released").split()[1])
        return {"seconds": first_grant(second, at)}


def idle(servers, scale, peer, waiters):
    with Worker(servers, peer, "idle", count=waiters) as worker:
        worker.expect("ready")
        time.sleep(2)
        with Commands(servers) as commands:
            time.sleep(scale.watch)
    sent = sum(commands.counts.values())
    return {"commands/s a waiter": sent / scale.watch / waiters}


def close(servers, scale, _peer, __):
    """fairlock beside the baseline in short turns, so that bursts of load affect both alike."""
    ratios = []
    for _ in range(2 if scale.quick else 7):
        lean, ours = (short_cycles(servers, peer)["server µs"] for peer in ("raw-setnx", "fairlock"))
        ratios.append(ours / lean)
    short, long = compare(servers, [(10, None), (scale.line[-1], None)])
    return {"uncontended server CPU ÷ SET NX": percentile(ratios, 0.5), "longest line ÷ shortest": long / short}


def short_cycles(servers, peer):
    with Worker(servers, peer, "uncontended", seconds=0.25, warm=0.05) as worker:
        worker.expect("ready")
        with usage_of(servers, peer) as usage:
            worker.go()
            times = [int(word) / 1e3 for word in worker.expect("ns").split()[1:]]
    return {"p50 µs": percentile(times, 0.5), "server µs": usage.change["cpu"] * 1e6 / len(times)}


def durable(servers, scale, peer, _):
    """What each variant of `durable` costs: alone, and eight threads that take turns."""
    if peer == "fairlock-quorum":
        time.sleep(max(0, servers.sentinels_count_at - time.monotonic()))
    alone, turns = uncontended(servers, scale, peer, None), hand_off(servers, scale, peer, 8)
    commands, busy = uncontended_commands(servers, scale, peer, None), hand_off_commands(servers, scale, peer, 8)
    return {
        "p50 µs": alone["p50 µs"], "script µs": alone["script µs"], "server µs": alone["server µs"],
        "bytes in": alone["bytes in"], "commands": commands["commands"], "hand-offs/s": turns["hand-offs/s"],
        "gap p50 µs": turns["gap p50 µs"], "commands a hand-off": busy["commands a hand-off"],
    }


WRITE_EVERY = 10  # holds of a thread, in all workers


def readers(servers, scale, peer, threads):
    """Threads that always want the lock and hold it for no time; every tenth hold of each is a write."""
    events = shared_turns(servers, scale, peer, threads)
    number, reads, writes = {}, [], []
    for thread, asked, granted, _ in events:
        number[thread] = number.get(thread, 0) + 1
        (reads if number[thread] % WRITE_EVERY else writes).append((granted - asked) / 1e3)
    return {**turns_of(events), "read p50 µs": percentile(reads, 0.5), "write p50 µs": percentile(writes, 0.5),
            "longest write µs": max(writes, default=None)}


def permits(servers, scale, peer, threads):
    """Threads that always want one of four permits, and hold it for no time."""
    events = shared_turns(servers, scale, peer, threads)
    waits = [(granted - asked) / 1e3 for _, asked, granted, _ in events]
    return {**turns_of(events), "wait p50 µs": percentile(waits, 0.5), "wait p99 µs": percentile(waits, 0.99),
            "longest wait µs": max(waits, default=None)}


def shared_turns(servers, scale, peer, threads):
    with Worker(servers, peer, "turns", count=threads, seconds=scale.seconds, warm=scale.warm(peer)) as worker:
        worker.expect("ready")
        worker.go()
        return worker.events()


def turns_of(events):
    seconds = (max(event[2] for event in events) - min(event[2] for event in events)) / 1e9
    return {"turns/s": (len(events) - 1) / seconds if seconds else 0}


def apart(servers, scale, peer, threads, build=None):
    """Threads of one process with a separate lock each."""
    with Worker(servers, peer, "apart", count=threads, seconds=scale.seconds, warm=scale.warm(peer), build=build) as worker:
        worker.expect("ready")
        with usage_of(servers, peer) as usage:
            worker.go()
            ops, *times = map(int, worker.expect("ops").split()[1:])
    return {"ops/s": ops / scale.seconds, **dict(zip(("p50 µs", "p99 µs"), (time / 1e3 for time in times))),
            **wire(servers, peer, usage, ops)}


def far(servers, scale, peer, millis):
    """Over a network: times in round trips. The next owner is in another process."""
    with servers.far_away(millis):
        trip = uncontended(servers, scale, "raw-ping", None)["p50 µs"]
        free = uncontended(servers, scale, peer, None)
        gap = crowd(servers, scale, peer=peer, count=4, seconds=1 if scale.quick else 4)
    return {"trip µs": trip, "free cycle": free["p50 µs"] / trip, "hand-offs/s": gap["hand-offs/s"],
            **{f"next owner, {at}": gap[f"gap {at} µs"] / trip for at in ("p50", "p99") if gap[f"gap {at} µs"]}}


def far_calls(servers, scale, peer, millis):
    """Round trips of fairlock's calls: a cycle on a new name, a try in vain, and a hand-over to who came during the hold."""
    with servers.far_away(millis):
        trip, new, busy = (cycles(servers, scale, at, mode)["p50 µs"]
                           for at, mode in (("raw-ping", "uncontended"), (peer, "new"), (peer, "busy")))
        gap = crowd(servers, scale, peer=peer, count=4, seconds=1 if scale.quick else 4, hold=5 * millis)
    return {"new name": new / trip, "busy try": busy / trip, "next in line": gap["gap p50 µs"] / trip}


def far_tasks(servers, scale, peer, millis):
    """1,000 tasks, or threads, with a free lock each, over a network."""
    with servers.far_away(millis):
        return many(servers, scale, peer, None, threads=1000, mode="apart")


def far_waits(servers, scale, peer, millis):
    """As many threads as COUNT ask once, all in the same moment, over a network: one that fails ends the worker."""
    count = 50 if scale.quick else 2000
    with servers.far_away(millis), Worker(servers, peer, "turns", count=count, seconds=1, warm=0) as worker:
        worker.expect("ready")
        worker.go()
        events = worker.events()
    return {"granted": len({event[0] for event in events}), **turns_figures(events)}


def locked_rows(servers, scale, peer, threads):
    """Cycles on free locks in 8 s, while threads of the same client ask for locks whose rows another session has locked."""
    with Worker(servers, peer, "locked rows", count=threads, seconds=1 if scale.quick else 8) as worker:
        worker.expect("ready")
        worker.go()
        ops, *times = map(int, worker.expect("ops").split()[1:])
    return {"cycles": ops, **dict(zip(("p50 µs", "p99 µs"), (time / 1e3 for time in times)))}


ON_REDIS = tuple(peer for peer in NEAR_ALL if peer not in ELSEWHERE)

# On PostgreSQL; commits are asynchronous without `-sync`. An advisory lock writes nothing.
STORES = ("postgres-advisory", "postgres-naive", "postgres-fairlock", "fairlock", "postgres-naive-sync",
          "postgres-fairlock-sync")

# number, name, function, variants, peers
WORKLOADS = (
    (1, "uncontended", uncontended, (None,), RAW + NEAR_ALL),
    (1, "uncontended: commands", uncontended_commands, (None,), ON_REDIS),
    (1, "alone", one_alone, (None,), ("fairlock", "fairlock-tasks-1", "fairlock-tasks", "rslock-tasks", "memory", "memory-tasks")),
    (2, "re-entry", reentry, (None,), ("fairlock", "redisson-fair", "redisson", "curator")),
    (3, "hand-off", hand_off, (2, 8, 32, 128), NEAR_ALL),
    (3, "hand-off: commands", hand_off_commands, (2, 8, 32, 128), ON_REDIS),
    (4, "processes", processes, (None,), NEAR_ALL),
    (5, "line", line, (0, 8, 10, 100, 1000, 10_000, 100_000), ("fairlock", "redisson 3.16")),
    (6, "many locks", many, (None,), ("raw-setnx", "raw-scripts") + NEAR_ALL),
    (9, "recovery", recovery, ("holder killed", "waiter killed"), NEAR_ALL),
    (9, "recovery", recovery, ("subscriber cut",), ("fairlock", "redisson-fair", "redisson")),
    (10, "idle", idle, (32,), ON_REDIS),
    (11, "close", close, (None,), ("fairlock",)),
    (13, "durable", durable, (None,), ("fairlock", "fairlock-life", "fairlock-quorum")),
    (14, "readers", readers, (8,), ("fairlock-rw", "redisson-rw", "curator-rw")),
    (15, "permits", permits, (32,), ("fairlock-permits", "redisson-permits", "curator-permits")),
    # First: for 30 s a new server with asynchronous commits reads a file for each grant.
    (16, "stores: processes", processes, (None,), ("postgres-advisory", "postgres-naive", "postgres-fairlock")),
    (16, "stores: free", uncontended, (None,), STORES),
    (16, "stores: free, apart", apart, (8,), STORES),
    (16, "stores: hand-off", hand_off, (8, 32), STORES),
    (16, "stores: locked rows", locked_rows, (0, 100), ("postgres-fairlock-sync",)),
    (17, "far", far, (1, 10), ("fairlock", "fairlock-tasks", *NEAR_ALL[1:], "postgres-fairlock", "postgres-advisory")),
    (17, "far: calls", far_calls, (1, 10), ("fairlock", "postgres-fairlock")),
    (17, "far: tasks", far_tasks, (10,), ("fairlock", "fairlock-tasks", "rslock-tasks", "async-redis-lock", "distkit")),
    (17, "far: waits", far_waits, (15,), ("postgres-fairlock",)),
    (18, "files", files, (None,), ("beside flock",)),
)
# Fewer rounds: counts, and a slow workload with a sample of 48 clients per round.
MOST_ROUNDS = {"uncontended: commands": 1, "hand-off: commands": 1, "processes": 1,
               "stores: processes": 1, "far": 1, "far: calls": 1, "far: waits": 1}
REFUSALS = (Stuck, Refused)
