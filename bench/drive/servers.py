"""The servers for the peers, started on free ports and stopped at the end."""

import os
import shutil
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


class Servers:
    def __init__(self, build, counts_instructions=False):
        self.build, self.counts_instructions = build, counts_instructions
        self.folder = tempfile.mkdtemp(prefix="fairlock-bench-")
        self.processes = {}
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

    def stop(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
