"""Runs each program of Java once, so that its classes are archived: `archive.py BUILD`."""

import os
import subprocess
import sys

from jvm import java
from stores import Redis, ZooKeeper


class ArchivingZooKeeper(ZooKeeper):
    archives = True

    def crash(self):  # not at once: a JVM writes its archive when it ends
        self.process.terminate()
        self.process.wait()


def main(build):
    redis, zookeeper = Redis(build), ArchivingZooKeeper(build)
    for address, program in ((f"redis://127.0.0.1:{redis.port}", ("RedissonAdaptor", "fair")), (f"127.0.0.1:{zookeeper.port}", ("CuratorAdaptor",))):
        subprocess.run(java(build, *program, archives=True), input="lock a\nheld?\nunlock\ntry a\nunlock\n", text=True,
                       env={**os.environ, "TORTURE_ADDRESS": address})
    redis.stop()
    zookeeper.stop()


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
