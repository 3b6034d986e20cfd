"""The servers for the peers, started on free ports and stopped at the end."""

import contextlib
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from redis_link import Link


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until_answering(port, process, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"{process.args[0]} has ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{process.args[0]} does not answer")


def postgres_programs():
    """The folder of the newest PostgreSQL's programs; None if there is none."""
    found = glob.glob("/usr/lib/postgresql/*/bin/initdb")
    if path := shutil.which("initdb"):
        found.append(os.path.realpath(path))
    return os.path.dirname(max(found, key=lambda path: int(re.search(r"(\d*)/bin", path)[1] or 0))) if found else None


def postgres_user():
    """What a command begins with so that PostgreSQL runs: the server refuses to run as root."""
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"] if os.geteuid() == 0 else []


class Servers:
    def __init__(self, build, counts_instructions=False):
        self.build, self.counts_instructions = build, counts_instructions
        self.folder = tempfile.mkdtemp(prefix="fairlock-bench-")
        self.processes, self.postgres_folder = {}, None
        self.environment = dict(os.environ)
        callgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={self.folder}/callgrind"]
        port = self.start("redis", lambda port: [*(callgrind if counts_instructions else ()), "redis-server", "--port", port,
                                                 "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        self.redis_port = port
        self.environment["BENCH_REDIS"] = f"redis://127.0.0.1:{port}"

    def start(self, name, command):
        port = free_port()
        log = open(f"{self.folder}/{name}.log", "w")
        words = [str(word) for word in command(port)]
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder)
        self.processes[name] = process
        until_answering(port, process)
        return port

    def start_sentinels(self):
        """Three, which name the server as their master."""
        ports = []
        for number in range(3):
            settings = f"{self.folder}/sentinel{number}.conf"
            with open(settings, "w") as file:
                file.write(f"bind 127.0.0.1\nsentinel monitor bench 127.0.0.1 {self.redis_port} 2\n"
                           "sentinel down-after-milliseconds bench 60000\n")
            ports.append(self.start(f"sentinel{number}", lambda port: ["redis-server", settings, "--sentinel",
                                                                       "--port", port]))
        # A voter counts once it has been up for longer than the trust.
        self.sentinels_count_at = time.monotonic() + 13
        self.environment["BENCH_SENTINELS"] = "redis+sentinel://" + ",".join(f"127.0.0.1:{port}" for port in ports) + "/bench"

    @contextlib.contextmanager
    def far_away(self, millis):
        """All servers are so many milliseconds away: a process before each hands on its bytes later."""
        near, networks = dict(self.environment), []
        try:
            for name in ("BENCH_REDIS", "BENCH_ETCD", "BENCH_ZOOKEEPER", "BENCH_POSTGRES"):
                if name in near:
                    port = re.search(r"127\.0\.0\.1:(\d+)", near[name])[1]
                    words = [f"{self.build}/release/delay", port, str(int(millis * 500))]
                    networks.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
                    self.environment[name] = near[name].replace(f":{port}", f":{int(networks[-1].stdout.readline())}")
            yield
        finally:
            self.environment = near
            for network in networks:
                network.kill()
                network.wait()

    def link(self):
        return Link(self.redis_port)

    def start_etcd(self):
        if not shutil.which("etcd"):
            return False
        peer = free_port()
        port = self.start("etcd", lambda port: [
            "etcd", "--data-dir", f"{self.folder}/etcd", "--listen-client-urls", f"http://127.0.0.1:{port}",
            "--advertise-client-urls", f"http://127.0.0.1:{port}", "--listen-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
            "--initial-cluster", f"default=http://127.0.0.1:{peer}"])
        self.environment["BENCH_ETCD"] = f"127.0.0.1:{port}"
        return True

    def start_zookeeper(self):
        if not shutil.which("java") or not os.path.isdir(f"{self.build}/java/lib"):
            return False
        # The limit of connections can be set in a file only.
        settings, port = f"{self.folder}/zoo.cfg", free_port()
        with open(settings, "w") as file:
            file.write(f"dataDir={self.folder}/zookeeper\nclientPort={port}\ntickTime=2000\nmaxClientCnxns=0\n"
                       "admin.enableServer=false\n")
        log = open(f"{self.folder}/zookeeper.log", "w")
        process = subprocess.Popen(["java", "-cp", f"{self.build}/java/lib/*",
                                    "org.apache.zookeeper.server.ZooKeeperServerMain", settings],
                                   stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder)
        self.processes["zookeeper"] = process
        until_answering(port, process)
        self.environment["BENCH_ZOOKEEPER"] = f"127.0.0.1:{port}"
        return True

    def start_postgres(self):
        """Its settings are the defaults. A session says whether its commits are asynchronous."""
        programs, user = postgres_programs(), postgres_user()
        if not programs:
            return False
        self.postgres_folder = tempfile.mkdtemp(prefix="fairlock-bench-")
        if user:
            shutil.chown(self.postgres_folder, "postgres", "postgres")
        data = f"{self.postgres_folder}/data"
        subprocess.run([*user, f"{programs}/initdb", "-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C", "-D", data], check=True,
                       stdout=subprocess.DEVNULL, cwd=self.postgres_folder)
        port = self.start("postgres", lambda port: [*user, f"{programs}/postgres", "-D", data, "-k", self.postgres_folder,
                                                    "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=300"])
        while subprocess.run([f"{programs}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]).returncode == 1:
            time.sleep(0.05)  # it listens before it lets anybody in
        url = f"postgres://bench@127.0.0.1:{port}/postgres"
        self.environment["BENCH_POSTGRES_SYNC"] = url
        self.environment["BENCH_POSTGRES"] = f"{url}?options=-c%20synchronous_commit%3Doff"
        subprocess.run([f"{self.build}/release/worker", "postgres-tables", url], check=True)
        return True

    def stop(self):
        if postgres := self.processes.get("postgres"):
            postgres.send_signal(signal.SIGINT)  # ends its sessions, and frees its memory
            try:
                postgres.wait(10)
            except subprocess.TimeoutExpired:
                pass
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.postgres_folder:
            shutil.rmtree(self.postgres_folder, ignore_errors=True)
