//! The calls for sockets. Those of IPv4 are the network's, with numbers that the system does not use; all others are the system's.

use std::ffi::{c_int, c_long};

use crate::kernel::{SEC, State, me, passes, wait, with};
use crate::net::{Con, End, Link};
use crate::real::{fail, get, get_bytes, put, put_bytes, system};

/// The first one's number.
const FIRST: c_int = 1 << 20;
/// What a call costs.
const SENDS: u64 = 3_000;
const READS: u64 = 1_000;
const MS: u64 = 1_000_000;

/// The calling thread and the connection, if the network has this socket.
fn ours(socket: c_int) -> Option<(usize, usize)> {
    Some((me()?, usize::try_from(socket.checked_sub(FIRST)?).ok()?))
}

fn on<T>(con: usize, act: impl FnOnce(&mut Con) -> T) -> T {
    with(|world| act(&mut world.net.cons[con]))
}

#[unsafe(no_mangle)]
extern "C" fn socket(domain: c_int, kind: usize, protocol: usize) -> c_int {
    if me().is_some() && domain == libc::AF_INET {
        return FIRST + with(|world| world.open()) as c_int;
    }
    system(libc::SYS_socket, &[domain as usize, kind, protocol]) as c_int
}

#[unsafe(no_mangle)]
extern "C" fn connect(socket: c_int, address: usize, length: usize) -> c_int {
    let Some((me, con)) = ours(socket) else {
        return system(libc::SYS_connect, &[socket as usize, address, length]) as c_int;
    };
    let client = get::<libc::sockaddr_in>(address).sin_addr.s_addr.to_ne_bytes()[3];
    with(|world| world.connect(con, client));
    if on(con, |con| con.never_blocks) {
        return fail(libc::EINPROGRESS);
    }
    while on(con, |con| con.link) == Link::Connecting {
        wait(me, State::Socket(con), None);
    }
    if on(con, |con| con.link) == Link::Up { 0 } else { fail(libc::ECONNREFUSED) }
}

/// Waits until one socket is connected: nothing here waits for several, or for anything else.
#[unsafe(no_mangle)]
extern "C" fn poll(polled: usize, count: usize, time: c_int) -> c_int {
    let first = if count == 1 { get::<libc::pollfd>(polled).fd } else { -1 };
    let Some((me, con)) = ours(first) else {
        return system(libc::SYS_poll, &[polled, count, time as usize]) as c_int;
    };
    let deadline = (time >= 0).then(|| with(|world| world.now) + time as u64 * MS);
    let is_due = || deadline.is_some_and(|deadline| deadline <= with(|world| world.now));
    while on(con, |con| con.link) == Link::Connecting && !is_due() {
        wait(me, State::Socket(con), deadline);
    }
    let events = match on(con, |con| con.link) {
        Link::Up => libc::POLLOUT,
        Link::Refused => libc::POLLOUT | libc::POLLERR | libc::POLLHUP,
        Link::Connecting => 0,
    };
    put(polled, libc::pollfd { revents: events, ..get(polled) });
    c_int::from(events != 0)
}

#[unsafe(no_mangle)]
extern "C" fn setsockopt(socket: c_int, level: usize, name: c_int, value: usize, length: usize) -> c_int {
    let Some((_, con)) = ours(socket) else {
        return system(libc::SYS_setsockopt, &[socket as usize, level, name as usize, value, length])
            as c_int;
    };
    if level != libc::SOL_SOCKET as usize {
    } else if name == libc::SO_RCVTIMEO {
        let time = get::<libc::timeval>(value);
        on(con, |con| con.patience = time.tv_sec as u64 * SEC + time.tv_usec as u64 * 1000);
    } else if name == libc::SO_LINGER {
        let linger = get::<libc::linger>(value);
        on(con, |con| con.resets = linger.l_onoff != 0 && linger.l_linger == 0);
    }
    0
}

/// Of the network's sockets only their error is asked for.
#[unsafe(no_mangle)]
extern "C" fn getsockopt(socket: c_int, level: usize, name: c_int, value: usize, length: usize) -> c_int {
    let Some((_, con)) = ours(socket) else {
        return system(libc::SYS_getsockopt, &[socket as usize, level, name as usize, value, length])
            as c_int;
    };
    let is_refused = name == libc::SO_ERROR && on(con, |con| con.link) == Link::Refused;
    put(value, if is_refused { libc::ECONNREFUSED } else { 0 });
    0
}

#[unsafe(no_mangle)]
extern "C" fn ioctl(socket: c_int, request: libc::c_ulong, argument: usize) -> c_int {
    let Some((_, con)) = ours(socket) else {
        return system(libc::SYS_ioctl, &[socket as usize, request as usize, argument]) as c_int;
    };
    if request == libc::FIONBIO {
        on(con, |con| con.never_blocks = get::<c_int>(argument) != 0);
    }
    0
}

/// Of the network's sockets std asks whether they are valid.
#[unsafe(no_mangle)]
extern "C" fn fcntl(socket: c_int, command: usize, argument: usize) -> c_int {
    if ours(socket).is_some() {
        0
    } else {
        system(libc::SYS_fcntl, &[socket as usize, command, argument]) as c_int
    }
}

#[unsafe(no_mangle)]
extern "C" fn send(socket: c_int, bytes: usize, length: usize, flags: usize) -> c_long {
    let Some((me, con)) = ours(socket) else {
        return system(libc::SYS_sendto, &[socket as usize, bytes, length, flags]);
    };
    passes(me, SENDS);
    match on(con, |con| con.end) {
        End::Open => {
            with(|world| world.send(con, &get_bytes(bytes, length)));
            length as c_long
        }
        End::Closed => fail(libc::EPIPE).into(),
        End::Reset => fail(libc::ECONNRESET).into(),
    }
}

#[unsafe(no_mangle)]
extern "C" fn recv(socket: c_int, out: usize, length: usize, flags: c_int) -> c_long {
    let Some((me, con)) = ours(socket) else {
        return system(libc::SYS_recvfrom, &[socket as usize, out, length, flags as usize]);
    };
    passes(me, READS);
    let patience = on(con, |con| con.patience);
    let deadline = (patience > 0).then(|| with(|world| world.now) + patience);
    loop {
        let (end, arrived) = on(con, |con| (con.end, con.inbox.len()));
        if end == End::Reset {
            return fail(libc::ECONNRESET).into();
        } else if arrived > 0 {
            let read: Vec<u8> = on(con, |con| con.inbox.drain(..arrived.min(length)).collect());
            put_bytes(out, &read);
            return read.len() as c_long;
        } else if end == End::Closed {
            return 0;
        }
        let never_blocks = on(con, |con| con.never_blocks) || flags & libc::MSG_DONTWAIT != 0;
        if never_blocks || deadline.is_some_and(|deadline| deadline <= with(|world| world.now)) {
            return fail(libc::EAGAIN).into();
        }
        wait(me, State::Socket(con), deadline);
    }
}

#[unsafe(no_mangle)]
extern "C" fn close(socket: c_int) -> c_int {
    let Some((_, con)) = ours(socket) else { return system(libc::SYS_close, &[socket as usize]) as c_int };
    with(|world| world.close(con));
    0
}
