"""The server of one scene: started anew for each, on a free port, so that no scene inherits the last one's faults."""

import os
import shutil
import signal
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

    can_forget = False  # it can start without its data
    has_replica = False
    follows_a_clock = False

    def __init__(self, build):
        self.build = build
        self.folder = new_folder()
        self.port = free_port()
        self.process = self.start()

    def run(self, words, **more):
        log = open(f"{self.folder}/log", "a")
        process = subprocess.Popen([*BOUND_TO_JUDGE, *map(str, words)], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                   cwd=self.folder, **more)
        return process

    def crash(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis(Server):
    can_forget = has_replica = True

    def __init__(self, build, clock=None):
        self.clock = clock  # (libfaketime, a redis-server that starts under it)
        self.follows_a_clock = clock is not None
        self.replica = None
        super().__init__(build)

    def start(self):
        program, more = "redis-server", {}
        if self.clock:
            library, program = self.clock
            self.set_clock(0)
            more["env"] = {**os.environ, "LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": f"{self.folder}/clock",
                           "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1"}
        process = self.run([program, "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes",
                            "--appendfsync", "always", "--repl-diskless-sync-delay", "0", "--repl-backlog-ttl", "0"], **more)
        until_answering(self.port, process, 120)
        return process

    def set_clock(self, seconds):
        with open(f"{self.folder}/clock.new", "w") as file:
            file.write(f"{seconds:+d}s")
        os.replace(f"{self.folder}/clock.new", f"{self.folder}/clock")  # half a file would be another clock

    def forget(self):
        shutil.rmtree(f"{self.folder}/appendonlydir", ignore_errors=True)

    def attach_replica(self, port_of_master):
        """A replica with all that the server has now; it copies by `port_of_master`, where the judge can hold the copy back."""
        port = free_port()
        os.makedirs(f"{self.folder}/replica")
        self.replica = self.run(["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                                 "--dir", f"{self.folder}/replica", "--replicaof", "127.0.0.1", port_of_master])
        until_answering(port, self.replica, 120)
        link, end = Link(port), time.monotonic() + 20
        while link.info("replication")["master_link_status"] != "up":
            if time.monotonic() > end:
                raise SystemExit("the replica does not follow")
            time.sleep(0.05)
        link.close()
        return port

    def promote(self, port):
        link = Link(port)
        link.ask("REPLICAOF", "NO", "ONE")
        link.close()

    def stop(self):
        if self.replica:
            self.replica.kill()
            self.replica.wait()
        super().stop()


class Postgres(Server):
    """A copy of a folder that `prepare` made once, since initdb takes seconds."""

    @classmethod
    def prepare(cls):
        folder = new_folder()
        if postgres_user():
            shutil.chown(folder, "postgres", "postgres")
        subprocess.run([*postgres_user(), f"{postgres_programs()}/initdb", "-A", "trust", "-U", "torture", "-E", "UTF8", "--locale=C", "-D",
                        f"{folder}/data"], check=True, stdout=subprocess.DEVNULL, cwd=folder)
        cls.template = folder
        return folder

    template = None

    def start(self):
        if not os.path.isdir(f"{self.folder}/data"):
            subprocess.run(["cp", "-a", f"{self.template}/data", self.folder], check=True)
            if postgres_user():
                shutil.chown(self.folder, "postgres", "postgres")
        process = self.run([*postgres_user(), *BOUND_TO_JUDGE, f"{postgres_programs()}/postgres", "-D", f"{self.folder}/data", "-k", self.folder, "-p", self.port,
                            "-c", "listen_addresses=127.0.0.1"])
        until_answering(self.port, process, 120)
        ready = [f"{postgres_programs()}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready).returncode == 1:
            time.sleep(0.05)  # it listens before it lets anybody in
        return process

    def crash(self):
        """SIGQUIT ends all its sessions at once, without a checkpoint: the next start recovers."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    def stop(self):
        self.crash()
        super().stop()


class ZooKeeper(Server):
    def start(self):
        settings = f"{self.folder}/zoo.cfg"
        with open(settings, "w") as file:  # tickTime: sessions may be from 1 s to 40 s
            file.write(f"dataDir={self.folder}/data\nclientPort={self.port}\ntickTime=500\nminSessionTimeout=1000\n"
                       "maxSessionTimeout=60000\nmaxClientCnxns=0\nadmin.enableServer=false\n")
        process = self.run(["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{self.build}/java/lib/*",
                            "org.apache.zookeeper.server.ZooKeeperServerMain", settings])
        until_answering(self.port, process, 120)
        return process


class Files:
    """The store is a folder."""

    can_forget = has_replica = follows_a_clock = False
    port = None

    def __init__(self, build):
        self.folder = new_folder()

    def state(self):
        """Differs when a request has arrived."""
        try:
            return {(entry.path, entry.stat().st_mtime_ns) for entry in os.scandir(self.folder)}
        except FileNotFoundError:
            return set()  # one went meanwhile

    def stop(self):
        shutil.rmtree(self.folder, ignore_errors=True)
