"""The worker for the peers in Python. The table in bench/drive/workers.py describes its modes and output."""

import os
import sys
import threading
import time

import redis
import redis_lock


def connect(peer, lease):
    """A function from a name to a pair: lock, unlock. One client for all threads, as in both READMEs."""
    # By default, its pool raises beyond 100 connections, and a read raises after 5 s, as in python-redis-lock's BLPOP.
    client = redis.Redis.from_url(os.environ["BENCH_REDIS"], max_connections=1000, socket_timeout=None)

    def python_redis_lock(name):
        lock = redis_lock.Lock(client, name, expire=max(1, int(lease)))
        return lock.acquire, lock.release

    def redis_py(name):
        lock = client.lock(name, timeout=lease)
        return lock.acquire, lock.release

    return {"python-redis-lock": python_redis_lock, "redis-py": redis_py}[peer]


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def handshake():
    say("ready")
    sys.stdin.readline()


def cycles(lock, unlock, seconds):
    times, last = [], time.monotonic_ns()
    end = last + int(seconds * 1e9)
    while last < end:
        lock()
        unlock()
        now = time.monotonic_ns()
        times.append(now - last)
        last = now
    return times


def all_threads(count, work):
    """Runs work(thread) in `count` threads; an exception in one ends the process."""

    def guarded(thread):
        try:
            work(thread)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def turns(peer, name, count, seconds, hold):
    events, end = [], time.time_ns() + int(seconds * 1e9)

    def work(thread):
        lock, unlock = peer(name)
        while time.time_ns() < end:
            asked = time.time_ns()
            lock()
            granted = time.time_ns()
            if hold:
                time.sleep(hold)
            leaving = time.time_ns()
            unlock()
            events.append((thread, asked, granted, leaving))

    all_threads(count, work)
    return events


def many(peer, name, count, seconds):
    done, end = [], time.time_ns() + int(seconds * 1e9)

    def work(thread):
        n = thread * 625
        while time.time_ns() < end:
            lock, unlock = peer(f"{name}:{n % 10000}")
            lock()
            unlock()
            n += 1
        done.append(n - thread * 625)

    all_threads(count, work)
    return sum(done)


def main():
    peer, mode, name = sys.argv[1:4]
    count, seconds, hold, lease, warm = int(sys.argv[4]), *map(float, sys.argv[5:9])
    peer = connect(peer, lease / 1000)
    lock, unlock = peer(name)
    if mode == "uncontended":
        cycles(lock, unlock, warm)
        handshake()
        say("ns " + " ".join(map(str, cycles(lock, unlock, seconds))))
        sys.stdin.readline()
    elif mode == "turns":
        turns(peer, name, count, warm, 0)
        handshake()
        events = turns(peer, name, count, seconds, hold / 1000)
        say("\n".join("e %d %d %d %d" % event for event in events))
        say("done")
    elif mode == "hold":
        handshake()
        lock()
        say(f"granted {time.time_ns()}")
        sys.stdin.readline()
        leaving = time.time_ns()
        unlock()
        say(f"released {leaving}")
    elif mode == "idle":
        lock()
        for _ in range(count):
            threading.Thread(target=peer(name)[0], daemon=True).start()
        handshake()
    elif mode == "many":
        many(peer, name, count, warm)
        handshake()
        say(f"ops {many(peer, name, count, seconds)}")
        sys.stdin.readline()
    else:
        raise SystemExit(f"no mode {mode}")
    sys.stdout.flush()
    os._exit(0)


main()
