"""The six words for a library in Python: read from the standard input, answered on the standard output."""

import os
import sys
import time


def setting(name, default=None):
    return os.environ.get(name, default)


def host_and_port():
    """Of redis://HOST:PORT. A client that is made of them retries; one that is made of a URL does not."""
    host, port = setting("TORTURE_ADDRESS").removeprefix("redis://").split(":")
    return host, int(port)


def seconds(name):
    """A setting in milliseconds, or None."""
    return float(setting(name)) / 1000 if setting(name) else None


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(adaptor):
    """`adaptor` has lock(name, limit), attempt(name), is_held() and unlock(), each of which returns an answer or raises."""
    say("ready")
    for line in sys.stdin:
        word, name, limit = (line.split() + [None, None])[:3]
        try:
            if word == "lock":
                say(adaptor.lock(name, int(limit) / 1000 if limit else None))
            elif word == "try":
                say(adaptor.attempt(name))
            elif word == "held?":
                say(adaptor.is_held())
            elif word == "unlock":
                say(adaptor.unlock())
            elif word == "stall":
                time.sleep(int(name) / 1000)
                say("ok")
            else:
                os._exit(1)  # die
        except Exception as error:
            say(f"error {type(error).__name__}: {error}".replace("\n", " "))
