"""The command of a JVM. Each program has an archive of the classes that it loads, which spare it a third of the work of its start."""

import os


def java(build, program, *words, archives=False):
    """With `archives` the JVM writes its archive when it ends."""
    archive, option = f"{build}/java/{program}.jsa", "ArchiveClassesAtExit" if archives else "SharedArchiveFile"
    shared = [f"-XX:{option}={archive}"] if archives or os.path.exists(archive) else []
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *shared, "-cp", f"{build}/java/adaptors.jar:{build}/java/lib/*", program, *words]
