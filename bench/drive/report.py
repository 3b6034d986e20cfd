"""Writes RESULTS.md and its plots from results.json: report.py FOLDER. Figures: median over the rounds [least–most]."""

import json
import math
import os
import statistics
import sys

import plot

folder = sys.argv[1]
with open(f"{folder}/results.json") as file:
    result = json.load(file)

values = {}  # (workload, variant, peer) → figure → round → value
for entry in result["figures"]:
    found = values.setdefault((entry["workload"], entry["variant"], entry["peer"]), {})
    for name, value in entry["figures"].items():
        if value is not None:
            found.setdefault(name, {})[entry["round"]] = value


def rounds(workload, variant, peer, figure):
    return values.get((workload, variant, peer), {}).get(figure, {})


def spread(numbers):
    """Least, median, most; None if there are no numbers."""
    numbers = sorted(numbers)
    return (numbers[0], statistics.median(numbers), numbers[-1]) if numbers else None


def absolute(workload, variant, peer, figure):
    return spread(rounds(workload, variant, peer, figure).values())


def ratio(above, below):
    """Per round, so that a slow machine affects both sides equally."""
    return spread([above[n] / below[n] for n in above if below.get(n)])


def number(value):
    if math.isinf(value):
        return "∞"
    if value and abs(value) < 10:
        return f"{value:.2f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def shown(found, widest=2):
    """The median; also least and most if these are further apart than `widest`."""
    if not found:
        return "–"
    low, middle, high = found
    is_close = number(low) == number(high) or high <= low * widest
    return number(middle) if is_close else f"{number(middle)} [{number(low)}–{number(high)}]"


def exactly(found):
    return shown(found, 1)


def peers_of(workload, variant=None):
    return list(dict.fromkeys(peer for (name, of, peer) in values if name == workload and (of == variant)))


def variants_of(workload):
    return list(dict.fromkeys(of for (name, of, _) in values if name == workload))


out = []


def table(head, rows):
    out.append("| " + " | ".join(head) + " |")
    out.append("| " + " | ".join(["---"] * len(head)) + " |")
    out.extend("| " + " | ".join(row) + " |" for row in rows)
    out.append("")


def picture(name, alt, svg):
    os.makedirs(f"{folder}/plots", exist_ok=True)
    with open(f"{folder}/plots/{name}.svg", "w") as file:
        file.write(svg)
    out.append(f"![{alt}](plots/{name}.svg)\n")


def target(what, wanted, found, meets):
    if found:
        verdict = "met" if meets(found[1]) else "**missed**"
        targets.append([what, wanted, exactly(found), verdict])


def target_by_threads(what, found_by_threads, wanted, meets):
    """One row for several numbers of threads."""
    found = {n: found for n, found in found_by_threads.items() if found}
    if found:
        missed = [str(n) for n in found if not meets(found[n][1])]
        verdict = f"**missed** with {' and '.join(missed)}" if missed else "met"
        targets.append([f"{what}; {listed(found)} threads", wanted, ", ".join(map(exactly, found.values())), verdict])


def listed(numbers):
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}" if others else last


def at_most(limit):
    return {"wanted": f"≤ {limit}", "meets": lambda value: value <= float(limit)}


def at_least(limit):
    return {"wanted": f"≥ {limit}", "meets": lambda value: value >= float(limit)}


machine = result["machine"]
of_rounds = "Figures are of one round" if result["rounds"] == 1 else (
    f"Figures are medians of up to {result['rounds']} rounds, with least and most in brackets; below the targets only if most is more than twice "
    "least. Counts of commands, 4 and 17 have one round")
out.append(f"""# fairlock beside its peers

Written by `bench/run` on {machine['date']}, from commit `{machine['commit']}`; don't edit it.
{of_rounds} (`results.json` has all). Peers take turns on one server; ratios are taken per round.

Server and clients share {machine['processor']}, Linux {machine['kernel']}, {machine['redis']}, {machine['rustc']}.
Load average (1 min, 5 min) before: {result['load before'][0]}, {result['load before'][1]}; after: {result['load after'][0]}, {result['load after'][1]}. The run took {result['seconds'] / 60:.0f} minutes.
""")
if result.get("quick"):
    out.append("**This was a quick run, to check that all works. Its figures mean little.**\n")

raw = rounds("uncontended", None, "raw-scripts", "p50 µs")
waiters = [v for v in variants_of("hand-off")]
targets = []
allocations, client = result.get("allocations"), result.get("client instructions")


def close(name):
    return absolute("close", None, "fairlock", name)


far = variants_of("far")
for figure, what, peer, limit in (("next owner, p50", "from unlock to the next owner", "fairlock", "1.1"),
                                  ("next owner, p50", "from unlock to the next owner, tasks", "fairlock-tasks", "1.1"),
                                  ("next owner, p50", "from unlock to the next owner, PostgreSQL", "postgres-fairlock", "2.2"),
                                  ("free cycle", "free cycle", "fairlock", "2.05"),
                                  ("free cycle", "free cycle, PostgreSQL", "postgres-fairlock", "2.05"),
                                  ("new name", "free cycle on a new name, PostgreSQL", "postgres-fairlock", "2.1"),
                                  ("busy try", "try of a held lock, PostgreSQL", "postgres-fairlock", "1.05"),
                                  ("next in line", "from unlock to a waiter that came during the hold, PostgreSQL", "postgres-fairlock", "2.1")):
    for millis in far:
        target(f"{what}: round trips of {millis} ms (p50)", **at_most(limit),
               found=absolute("far", millis, peer, figure) or absolute("far: calls", millis, peer, figure))
target("1,000 tasks on free locks, 10 ms away: cycles/s ÷ rslock's", **at_least("0.9"),
       found=ratio(*(rounds("far: tasks", 10, peer, "ops/s") for peer in ("fairlock-tasks", "rslock-tasks"))))
target("PostgreSQL: free locks taken in 8 s beside 100 threads at locked rows", **at_least("2317"),
       found=absolute("stores: locked rows", 100, "postgres-fairlock-sync", "cycles"))
for what, figure, limit in (("time", "p50 µs", "1.4"), ("processor time", "client µs", "2")):
    for called, peer in (("one thread", "fairlock-tasks-1"), ("two threads", "fairlock-tasks")):
        target(f"near: a task's cycle ÷ a thread's, {what}, tokio with {called}", **at_most(limit),
               found=ratio(*(rounds("alone", None, one, figure) for one in (peer, "fairlock"))))
target("memory: a task's cycle ÷ a thread's, time", **at_most("3"),
       found=ratio(*(rounds("alone", None, one, "p50 µs") for one in ("memory-tasks", "memory"))))
target("2,000 threads that wait, PostgreSQL 15 ms away: granted", "2000",
       absolute("far: waits", 15, "postgres-fairlock", "granted"), lambda granted: granted == 2000)
target_by_threads("scripts per hand-off, all commands counted", wanted="2.00", meets=lambda r: abs(r - 2) < 0.01,
                  found_by_threads={n: absolute("hand-off: commands", n, "fairlock", "commands") for n in variants_of("hand-off: commands")})
polled = [count for n in waiters for count in rounds("hand-off", n, "fairlock", "grants by polling").values()]
target("grants by polling in all hand-offs", "0", spread([sum(polled)]) if polled else None, lambda r: r == 0)
for workload, peer, where in (("processes", "fairlock", "Redis"), ("stores: processes", "postgres-fairlock", "PostgreSQL")):
    target(f"48 processes on {where}, 10 ms hold: most ÷ fewest grants a client", **at_most("1.05"),
           found=absolute(workload, None, peer, "max/min"))
target("server time per hand-off, 100,000 places ÷ 10 places", found=close("longest line ÷ shortest"), **at_most("1.2"))
target("server CPU of a free cycle ÷ SET NX and delete", found=close("uncontended server CPU ÷ SET NX"), **at_most("1.6"))
beside_flock = values.get(("files", None, "beside flock"), {})
for what, limit in (("cycle", "3"), ("hand-over", "5")) if beside_flock else ():
    target(f"files: time of a {what} ÷ `flock`", **at_most(limit),
           found=ratio(beside_flock[f"{what} fairlock-file"], beside_flock[f"{what} flock"]))
out.append("## Targets\n")
out.append("What depends on the machine is no target; the last one does, a little. Sections have the numbers of the workloads. "
           "[README.md](README.md#baselines) explains the baselines, [NOTES.md](NOTES.md) why some targets are missed.\n")
table(["what", "target", "measured", ""], targets)


def compared(workload, variant, figures, main, more_is_better=False, skip=()):
    """One row per peer: its main figure relative to fairlock, then all figures."""
    rows = []
    ours = rounds(workload, variant, "fairlock", main)
    for peer in peers_of(workload, variant):
        if peer in skip:
            continue
        theirs = rounds(workload, variant, peer, main)
        compare = ratio(ours, theirs) if more_is_better else ratio(theirs, ours)
        name = f"**{peer}**" if peer == "fairlock" else peer
        rows.append([name, "1" if peer == "fairlock" else shown(compare)]
                    + [shown(absolute(workload, variant, peer, figure)) for figure in figures])
    return rows


if far:
    out.append("## 17 Servers that are far away\n")
    out.append("Four processes always want the lock and hold it for no time. Times are in round trips: a PING over the same network is 1. *To the next "
               "owner*: from the call of unlock in one process to the return of lock in another one. A peer that polls hands over "
               "rarely, since the former owner takes the lock again.\n")
    rows = [(peer, middle[1], middle[1], absolute("far", far[-1], peer, "next owner, p99")[1]) for peer in peers_of("far", far[-1])
            if (middle := absolute("far", far[-1], peer, "next owner, p50"))]
    picture("far", "From unlock to the next owner, in round trips, by library", plot.bars(
        f"From unlock to the next owner, {far[-1]} ms away", "round trips; bar and number: p50; line: up to p99; dashed: one trip", rows, "", 1))
    heads = ["free cycle", "to the next owner, p50", "p99", "hand-offs/s"]
    figures = ["free cycle", "next owner, p50", "next owner, p99", "hand-offs/s"]
    table(["library", *(f"{head}, {millis} ms" for millis in far for head in heads)],
          [[peer, *(shown(absolute("far", millis, peer, figure)) for millis in far for figure in figures)]
           for peer in peers_of("far", far[-1])])
    if calls := peers_of("far: calls", far[-1]):
        out.append("Round trips (p50) of other calls: a cycle on a new name; a try in vain; a hand-over to a process that came during the hold:\n")
        figures = ["new name", "busy try", "next in line"]
        table(["library", *(f"{figure}, {millis} ms" for millis in far for figure in figures)],
              [[peer, *(shown(absolute("far: calls", millis, peer, figure)) for millis in far for figure in figures)] for peer in calls])
    out.append("1,000 tasks, or threads, with a free lock each, 10 ms away:\n")
    table(["library", "cycles/s", "p50 µs", "p99 µs", "connections", "client CPU, µs"],
          [[peer, *(shown(absolute("far: tasks", 10, peer, figure))
                    for figure in ("ops/s", "p50 µs", "p99 µs", "connections", "client µs"))] for peer in peers_of("far: tasks", 10)])

AS = "times fairlock"
out.append("## 1 Uncontended lock and unlock\n")
if raw:
    rows = [(peer, *absolute("uncontended", None, peer, "p50 µs")) for peer in peers_of("uncontended")]
    picture("uncontended", "Time of an uncontended cycle, by library", plot.bars(
        "Uncontended lock + unlock, p50", "µs; grey: baselines; dashed: two raw EVALSHA", rows, " µs",
        absolute("uncontended", None, "raw-scripts", "p50 µs")[1]))


def which(workload, variant, peer):
    found = values.get((workload, variant, peer), {})
    return ", ".join(f"{name.removeprefix('command ')} {number(next(iter(count.values())))}"
                     for name, count in found.items() if name.startswith("command ")) or "–"


figures = ["p50 µs", "p99 µs", "bytes in", "server µs", "script µs"]
rows = compared("uncontended", None, figures, "p50 µs")
table(["library", f"p50, {AS}", "p50 µs", "p99 µs", "bytes to the server", "its CPU, µs", "its scripts, µs", "commands"],
      [[*row, which("uncontended: commands", None, peer)] for row, peer in zip(rows, peers_of("uncontended"))])
out.append("*Its scripts*: the server's time for scripts, and for a SET that takes the lock (`INFO commandstats`).\n")
if allocations:
    out.append("fairlock's allocations per cycle: "
               + ", ".join(f"{count} ({size} bytes) on {backend}" for backend, (count, size) in allocations.items())
               + ".\n")
if client:
    out.append(f"The client's instructions for a cycle: {client['redis']:,.0f} on Redis.\n")

if peers_of("alone"):
    out.append("One thread, or one task of tokio with two worker threads (`-1`: with one), on a free lock:\n")
    table(["peer", "p50 µs", "p99 µs", "its CPU, µs"],
          [[peer, *(shown(absolute("alone", None, peer, figure)) for figure in ("p50 µs", "p99 µs", "client µs"))]
           for peer in peers_of("alone")])

out.append("## 2 Re-entry\n")
out.append("The other peers have none.\n")
table(["library", f"p50, {AS}", "p50 µs", "p99 µs"], compared("re-entry", None, ["p50 µs", "p99 µs"], "p50 µs"))

out.append("## 3 Hand-off\n")
out.append("Threads of one process always want the lock and hold it for no time. In a hand-off the lock goes to another "
           "owner; its gap runs from the call of unlock to the return of the next owner's lock. Peers that poll have many turns and few "
           "hand-offs, since one thread takes the lock again and again.\n")
if waiters:
    for name, figure, title in (("hand-offs", "hand-offs/s", "Hand-offs a second"),
                                ("gaps", "gap p50 µs", "From unlock to the next owner, p50, µs")):
        series = {}
        for n in waiters:
            for peer in peers_of("hand-off", n):
                found = absolute("hand-off", n, peer, figure)
                if found and found[0] > 0:
                    series.setdefault(peer, []).append((n, *found))
        picture(name, title, plot.lines(title, "waiters", "logarithmic; the band is the spread over the rounds", series))
if waiters:
    out.append(f"With {listed(waiters)} waiters:\n")
    figures = ["hand-offs/s", "turns/s", "gap p50 µs", "gap p99 µs", "server µs"]
    by_waiters = [compared("hand-off", n, figures, "hand-offs/s", more_is_better=True) for n in waiters]
    table(["library", "fairlock's hand-offs ÷ its", *figures[:-1], "server CPU, µs per turn"],
          [[rows[0][0], *("; ".join(cells) for cells in list(zip(*rows))[1:])] for rows in zip(*by_waiters)])

out.append("## 4 Fairness: 48 processes, 10 ms hold\n")
out.append("A grant overtakes if another process had asked at least 2 ms earlier and was still waiting.\n")
rows = compared("processes", None, ["grants a client, fewest", "grants a client, most", "overtaking grants", "hand-offs/s"],
                "hand-offs/s", more_is_better=True)
table(["library", "fairlock's hand-offs ÷ its", "fewest grants a client", "most", "overtaking grants", "hand-offs/s"], rows)
shares = {peer: next(iter(rounds("processes", None, peer, "grants").values()), None)
          for peer in peers_of("processes")}
shares = {peer: grants for peer, grants in shares.items() if grants}
if shares:
    picture("fairness", "Turns of each client, by library", plot.shares(
        "Turns of each client in the same time", "one bar per client, the fewest first; dashed: an equal share",
        shares))

out.append("## 5 Server script time, and cost against the length of the queue\n")
out.append("Server time (`INFO commandstats`) of a hand-off's scripts: the release, and the former holder's next request (with Redisson, "
           "also the next holder's). `redisson 3.16` is Redisson 3.16.8's fair lock. Medians are of batches of 20, except for its long "
           "lines.\n")
series = {}
for places in sorted(variants_of("line")):
    if places < 10:
        continue  # the axis is logarithmic, and 8 is next to 10
    for peer in peers_of("line", places):
        series.setdefault(peer, []).append((places, *absolute("line", places, peer, "server µs")))
if series:
    picture("line", "Server time per hand-off against the length of the queue",
            plot.lines("Server time per hand-off, µs", "places in the queue", "logarithmic", series))
table(["places", "fairlock µs", "redisson 3.16 µs", "redisson 3.16, times fairlock"],
      [[f"{places:,}" if places else "0: uncontended", shown(absolute("line", places, "fairlock", "server µs")),
        shown(absolute("line", places, "redisson 3.16", "server µs")),
        shown(ratio(rounds("line", places, "redisson 3.16", "server µs"), rounds("line", places, "fairlock", "server µs")))]
       for places in sorted(variants_of("line"))])

out.append("## 6 Many locks: 16 threads over 10,000 names\n")
table(["library", "fairlock's ops ÷ its", "ops/s", "connections", "server CPU, µs", "client CPU, µs"],
      compared("many locks", None, ["ops/s", "connections", "server µs", "client µs"], "ops/s", more_is_better=True))

out.append("## 9 and 10 Time to recover, and idle waiters\n")
out.append("Seconds until the next grant, with leases of 3 s; 20: not within 20 s. *Holder killed*: from SIGKILL, with up to 3 s of lease left. "
           "*Waiter killed*: from the release; the next in the queue was killed before. *Subscriber cut*: CLIENT KILL TYPE pubsub just before "
           "the release. *Idle*: 32 threads wait; the holder's renewals are included.\n")
accidents = ["holder killed", "waiter killed", "subscriber cut"]
table(["library"] + accidents + ["idle: commands/s per waiter"],
      [[peer] + [shown(absolute("recovery", accident, peer, "seconds")) for accident in accidents]
       + [shown(absolute("idle", 32, peer, "commands/s a waiter"))] for peer in peers_of("recovery", accidents[0])])

durable = peers_of("durable", None)
if durable:
    out.append("## 13 The cost of `durable`\n")
    out.append("On one server: a free cycle, and eight threads in turns. With a quorum a push only makes the waiter ask, which is one trip "
               "more.\n")
    figures = ["p50 µs", "server µs", "hand-offs/s", "commands a hand-off"]
    table(["variant", "cycle ÷ without", "hand-off gap ÷ without", *figures],
          [[peer, *(shown(ratio(rounds("durable", None, peer, figure), rounds("durable", None, "fairlock", figure)))
                    for figure in ("p50 µs", "gap p50 µs")),
            *(shown(absolute("durable", None, peer, figure)) for figure in figures)] for peer in durable])

for name, title, threads, said, figures in (
        ("readers", "14 Readers and writers", 8, "Eight threads always want the lock and hold it for no time; every tenth hold is a "
         "write. *Longest write*: a writer's longest wait.",
         ["turns/s", "read p50 µs", "write p50 µs", "longest write µs"]),
        ("permits", "15 Permits", 32, "32 threads always want one of four permits and hold it for no time. Redisson: "
         "`getPermitExpirableSemaphore`; Curator: `InterProcessSemaphoreV2`.",
         ["turns/s", "wait p50 µs", "wait p99 µs", "longest wait µs"])):
    if peers_of(name, threads):
        out.append(f"## {title}\n")
        out.append(said + "\n")
        ours = rounds(name, threads, peers_of(name, threads)[0], "turns/s")
        table(["library", "fairlock's turns ÷ its", *figures],
              [[peer, shown(ratio(ours, rounds(name, threads, peer, "turns/s"))),
                *(shown(absolute(name, threads, peer, figure)) for figure in figures)] for peer in peers_of(name, threads)])

stores = peers_of("stores: free")
if stores:
    out.append("## 16 PostgreSQL\n")
    out.append("*advisory*: `pg_advisory_lock`, a session for each thread; no lease, no token, no writes. *naive*: a row for each lock, taken by "
               "`INSERT … ON CONFLICT … WHERE until <= now`; waiters ask every 10 ms. Both use the crate `postgres` with prepared statements. "
               "Commits are asynchronous, except with `-sync`. Times are p50; CPU is the server's per cycle or turn.\n")
    called = {"fairlock": "fairlock on Redis", "postgres-fairlock": "**fairlock on PostgreSQL**",
              "postgres-fairlock-sync": "**fairlock on PostgreSQL**-sync"}
    columns = [("free cycle µs", "stores: free", None, "p50 µs"), ("its CPU µs", "stores: free", None, "server µs"),
               ("8 free locks, 8 threads: cycles/s", "stores: free, apart", 8, "ops/s")]
    for n in variants_of("stores: hand-off"):
        columns += [(f"hand-offs/s, {n} threads", "stores: hand-off", n, "hand-offs/s"), (f"turns/s, {n}", "stores: hand-off", n, "turns/s"),
                    (f"CPU µs, {n}", "stores: hand-off", n, "server µs")]
    columns += [("48 processes: most ÷ fewest", "stores: processes", None, "max/min"),
                ("overtaking grants", "stores: processes", None, "overtaking grants")]
    table(["lock", *(head for head, *_ in columns)],
          [[called.get(peer, peer.removeprefix("postgres-")),
            *(shown(absolute(name, variant, peer, figure)) for _, name, variant, figure in columns)] for peer in stores])
    if beside := variants_of("stores: locked rows"):
        out.append("One thread takes free locks with new names for 8 s, beside threads of its client that ask for locks whose rows another session "
                   "has locked. Commits are synchronous.\n")
        table(["threads at locked rows", "free locks taken", "p50 µs", "p99 µs"],
              [[str(n), *(shown(absolute("stores: locked rows", n, "postgres-fairlock-sync", figure)) for figure in ("cycles", "p50 µs", "p99 µs"))]
               for n in beside])

if result["missing"]:
    out.append("## What did not work\n")
    out.extend(f"- {name}, {variant or ''} {peer}, round {turn + 1}: {why}" for _, name, variant, peer, turn, why in result["missing"])
    out.append("")

for what, wanted, found, verdict in targets:
    print(f"{what}: {found} (target {wanted}): {verdict.replace('**', '')}")
with open(f"{folder}/RESULTS.md", "w") as file:
    file.write("\n".join(out))
