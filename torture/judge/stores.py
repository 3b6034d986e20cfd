"""The server of one scene: started anew for each, on a free port, so that no scene inherits the last one's faults."""

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from adaptor import BOUND_TO_JUDGE

sys.path.append(f"{os.path.dirname(os.path.abspath(__file__))}/../../bench/drive")
from redis_link import Link  # noqa: E402
from servers import free_port, postgres_programs, postgres_user, until_answering  # noqa: E402


def new_folder():
    """In memory where there is room: a slow disk is no fault of a library."""
    has_room = os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 2 << 30
    return tempfile.mkdtemp(prefix="fairlock-torture-", dir="/dev/shm" if has_room else None)


class Server:
    """A process on a port that it keeps when it is started again."""

    def __init__(self, build, has_clock=False):
        self.build, self.has_clock = build, has_clock  # of its own, which the judge can step
        self.folder = new_folder()
        self.port = free_port()
        self.replica = None
        self.process = self.start()

    def run(self, *words, user=()):
        clock = []
        if self.has_clock:
            self.set_clock(0)
            clock = ["env", f"LD_PRELOAD={self.build}/clock.so", f"WRONG_CLOCK={self.folder}/clock"]
        log = open(f"{self.folder}/log", "a")
        return subprocess.Popen([*user, *BOUND_TO_JUDGE, *clock, *map(str, words)], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder)

    def set_clock(self, seconds):
        """So many seconds ahead. One write into the file, which the server has mapped."""
        file = os.open(f"{self.folder}/clock", os.O_CREAT | os.O_WRONLY, 0o644)
        os.write(file, struct.pack("ii", 1000 * seconds, 0))
        os.close(file)

    def crash(self):
        end(self.process)

    def stop(self):
        self.crash()
        if self.replica:
            end(self.replica)
        shutil.rmtree(self.folder, ignore_errors=True)


def end(process, number=signal.SIGKILL):
    process.send_signal(number)
    process.wait()


def until(is_true, what):
    limit = time.monotonic() + 30
    while not is_true():
        if time.monotonic() > limit:
            raise SystemExit(what)
        time.sleep(0.05)


class Redis(Server):
    def start(self):
        process = self.run("redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes",
                           "--appendfsync", "always", "--repl-diskless-sync-delay", "0", "--repl-backlog-ttl", "0")
        until_answering(self.port, process, 120)
        return process

    def forget(self):
        shutil.rmtree(f"{self.folder}/appendonlydir", ignore_errors=True)

    def attach_replica(self, port_of_master):
        """A replica with all that the server has now; it copies by `port_of_master`, where the judge can hold the copy back."""
        port = free_port()
        os.makedirs(f"{self.folder}/replica")
        self.replica = self.run("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                                "--dir", f"{self.folder}/replica", "--replicaof", "127.0.0.1", port_of_master)
        until_answering(port, self.replica, 120)
        link = Link(port)
        until(lambda: link.info("replication")["master_link_status"] == "up", "the replica does not follow")
        link.close()
        return port

    def promote(self, port):
        link = Link(port)
        link.ask("REPLICAOF", "NO", "ONE")
        link.close()


class Postgres(Server):
    """A copy of a folder that `prepare` made once, since initdb takes seconds."""

    template = None

    @classmethod
    def prepare(cls):
        folder = new_folder()
        if postgres_user():
            shutil.chown(folder, "postgres", "postgres")
        subprocess.run([*postgres_user(), f"{postgres_programs()}/initdb", "-A", "trust", "-U", "torture", "-E", "UTF8", "--locale=C", "-D",
                        f"{folder}/data"], check=True, stdout=subprocess.DEVNULL, cwd=folder)
        cls.template = folder
        return folder

    def start(self):
        if not os.path.isdir(f"{self.folder}/data"):
            subprocess.run(["cp", "-a", f"{self.template}/data", self.folder], check=True)
            if postgres_user():
                shutil.chown(self.folder, "postgres", "postgres")
        return self.serve("data", self.port)

    def serve(self, data, port, *settings):
        process = self.run(f"{postgres_programs()}/postgres", "-D", f"{self.folder}/{data}", "-k", self.folder, "-p", port,
                           "-c", "listen_addresses=127.0.0.1", *settings, user=postgres_user())
        until_answering(port, process, 120)
        ready = [f"{postgres_programs()}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        until(lambda: subprocess.run(ready).returncode != 1, "PostgreSQL lets nobody in")
        return process

    def ask(self, port, query):
        words = [f"{postgres_programs()}/psql", "-h", "127.0.0.1", "-p", str(port), "-U", "torture", "-d", "postgres", "-Atc", query]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    def attach_replica(self, port_of_primary):
        """A standby with all that the server has now. It copies by `port_of_primary`, and no commit waits for it."""
        port = free_port()
        subprocess.run([*postgres_user(), f"{postgres_programs()}/pg_basebackup", "-h", "127.0.0.1", "-p", str(self.port), "-U", "torture",
                        "-D", f"{self.folder}/replica", "-c", "fast", "-R"], check=True, cwd=self.folder)
        self.replica = self.serve("replica", port, "-c", f"primary_conninfo=host=127.0.0.1 port={port_of_primary} user=torture")
        until(lambda: self.ask(self.port, "select state from pg_stat_replication") == "streaming", "the standby does not follow")
        return port

    def promote(self, port):
        self.ask(port, "select pg_promote()")

    def crash(self):
        """SIGQUIT ends all its sessions at once, without a checkpoint: the next start recovers."""
        end(self.process, signal.SIGQUIT)

    def stop(self):
        if self.replica:
            end(self.replica, signal.SIGQUIT)
        super().stop()


class ZooKeeper(Server):
    def start(self):
        process = self.serve(self.folder, self.port)
        until_answering(self.port, process, 120)
        return process

    def serve(self, folder, port, settings=""):
        with open(f"{folder}/zoo.cfg", "w") as file:  # tickTime: sessions may be from 1 s to 60 s
            file.write(f"dataDir={folder}/data\nclientPort={port}\ntickTime=500\nminSessionTimeout=1000\nmaxSessionTimeout=60000\n"
                       f"maxClientCnxns=0\nadmin.enableServer=false\n{settings}")
        return self.run("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{self.build}/java/lib/*",
                        "org.apache.zookeeper.server.quorum.QuorumPeerMain", f"{folder}/zoo.cfg")


class Ensemble(ZooKeeper):
    """Three servers. Clients use the leader, and after its end one of the two that are left."""

    def start(self):
        ports: "set[int]" = set()
        while len(ports) < 9:
            ports.add(free_port())
        clients, peers, elections = (list(ports)[start::3] for start in range(3))
        names = "".join(f"server.{number}=127.0.0.1:{peers[number]}:{elections[number]}\n" for number in range(3))
        self.members = {}
        for number, port in enumerate(clients):
            folder = f"{self.folder}/{number}"
            os.makedirs(f"{folder}/data")
            with open(f"{folder}/data/myid", "w") as file:
                file.write(str(number))
            self.members[port] = self.serve(folder, port, f"initLimit=40\nsyncLimit=10\n{names}")
        until(lambda: all(map(mode, self.members)), "an ensemble elects no leader")
        self.port = self.leader()
        return self.members[self.port]

    def leader(self):
        return next((port for port in self.members if mode(port) == "leader"), None)

    def attach_replica(self, _):
        """Nothing holds the copy back: a write that a majority lacks is not acknowledged."""
        return next(port for port in self.members if port != self.port)

    def promote(self, _):
        until(self.leader, "the two that are left elect no leader")

    def stop(self):
        for process in self.members.values():
            end(process)
        super().stop()


def mode(port):
    """leader, follower, or None while it serves nobody."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as link:
            link.sendall(b"srvr")
            found = re.search(r"Mode: (\w+)", link.makefile().read())
            return found and found[1]
    except OSError:
        return None


class Files:
    """The store is a folder."""

    port = None

    def __init__(self):
        self.folder = new_folder()

    def state(self):
        """Differs when a request has arrived."""
        try:
            return {(entry.path, entry.stat().st_mtime_ns) for entry in os.scandir(self.folder)}
        except FileNotFoundError:
            return set()  # one went meanwhile

    def stop(self):
        shutil.rmtree(self.folder, ignore_errors=True)
