"""Measures the server: commands sent by clients, bytes, processor time."""

import collections
import os
import socket
import threading


class Commands:
    """Counts by MONITOR what clients sent, without the commands in scripts. It slows the server, so take no times."""

    def __init__(self, servers):
        self.link = servers.link()
        self.counts = collections.Counter()

    def __enter__(self):
        self.link.ask("MONITOR")
        self.thread = threading.Thread(target=self._read)
        self.thread.start()
        return self

    def _read(self):
        try:
            for line in self.link.reader:
                head, _, rest = line.partition(b'] "')
                if rest and not head.endswith(b" lua"):
                    self.counts[rest.split(b'"', 1)[0].decode().upper()] += 1
        except OSError:
            pass

    def __exit__(self, *_):
        self.link.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.link.close()


def script_micros(info):
    """The time of all scripts so far, from INFO commandstats."""
    return sum(micros(info, name) for name in ("eval", "evalsha"))


def micros(info, command):
    stats = info.get(f"cmdstat_{command}")
    return int(stats.split("usec=")[1].split(",")[0]) if stats else 0


class Usage:
    """Bytes and processor time of the server between the two ends of a `with`."""

    def __init__(self, servers):
        self.link = servers.link()

    def _read(self):
        info = self.link.info("stats", "cpu", "commandstats")
        calls = sum(int(info[name].split("calls=")[1].split(",")[0])
                    for name in ("cmdstat_eval", "cmdstat_evalsha") if name in info)
        return {
            "bytes in": int(info["total_net_input_bytes"]),
            "bytes out": int(info["total_net_output_bytes"]),
            "cpu": float(info["used_cpu_user"]) + float(info["used_cpu_sys"]),
            "scripts": calls,
            "script µs": script_micros(info),
            "SET µs": micros(info, "set"),
        }

    def __enter__(self):
        once, twice = self._read(), self._read()
        self.own = {name: twice[name] - once[name] for name in once}
        self.before = self._read()
        return self

    def __exit__(self, *_):
        after = self._read()
        self.change = {name: after[name] - self.before[name] - (self.own[name] if "bytes" in name else 0)
                       for name in after}
        self.link.close()


class PostgresUsage:
    """The processor time of all processes of the PostgreSQL server between the two ends of a `with`, those included that end in it."""

    def __init__(self, servers):
        self.first = servers.processes["postgres"].pid

    def _read(self):
        with open(f"/proc/{self.first}/task/{self.first}/children") as file:
            living = [self.first, *map(int, file.read().split())]
        seconds = 0
        for process in living:
            try:
                with open(f"/proc/{process}/schedstat") as file:
                    seconds += int(file.read().split()[0]) / 1e9
            except (FileNotFoundError, ProcessLookupError):  # ended in between: counted below
                pass
        with open(f"/proc/{self.first}/stat") as file:
            ended = file.read().rsplit(") ", 1)[1].split()[13:15]
        return {"cpu": seconds + sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")}

    def __enter__(self):
        self.before = self._read()
        return self

    def __exit__(self, *_):
        after = self._read()
        self.change = {name: after[name] - self.before[name] for name in after}
