//! A connected socket on which every wait ends at one deadline, however slowly the peer sends or reads.
//!
//! The operating system has a time-out for each single read and write, which a peer that sends one byte at a time never
//! exceeds. Here the time-out is the time until the deadline. It is set again only where that matters, so a quick
//! answer costs no further system call.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, TcpKeepalive, Type};

/// How late a wait may end.
const SLACK: Duration = Duration::from_millis(5);
/// The shortest time-out: zero would mean none.
const LEAST: Duration = Duration::from_millis(1);

/// A TCP or Unix socket.
pub(crate) struct Socket {
    raw: socket2::Socket,
    deadline: Instant,
    reads: TimeOut,
    writes: TimeOut,
    /// A reply to what was sent may still come.
    is_unanswered: bool,
}

/// The time-out that was last set at the operating system.
#[derive(Clone, Copy)]
struct TimeOut(Duration);

impl Socket {
    /// Connects by TCP until `deadline`, which holds for later reads and writes too, until another one is set.
    pub(crate) fn tcp(addr: &SocketAddr, deadline: Instant) -> io::Result<Socket> {
        let stream = TcpStream::connect_timeout(addr, time_until(deadline)?)?;
        let raw = socket2::Socket::from(stream);
        raw.set_tcp_nodelay(true)?;
        // Keep-alive finds a peer that vanished while the connection is idle, the user time-out one that does not
        // acknowledge. Both are for peers that fell silent; a late answer meets its deadline long before.
        let keep_alive =
            TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
        #[cfg(not(target_os = "windows"))]
        let keep_alive = keep_alive.with_retries(3);
        raw.set_tcp_keepalive(&keep_alive)?;
        #[cfg(target_os = "linux")]
        raw.set_tcp_user_timeout(Some(Duration::from_secs(20)))?;
        Ok(Socket::new(raw, deadline))
    }

    /// Connects to a socket's path. If the server does not accept, its queue fills up and further connections wait; the
    /// write time-out bounds that.
    pub(crate) fn unix(path: &Path, deadline: Instant) -> io::Result<Socket> {
        let (raw, addr) = (socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(path)?);
        let mut socket = Socket::new(raw, deadline);
        socket.write_by(|raw| raw.connect(&addr))?;
        Ok(socket)
    }

    fn new(raw: socket2::Socket, deadline: Instant) -> Socket {
        let none = TimeOut(Duration::MAX);
        Socket { raw, deadline, reads: none, writes: none, is_unanswered: false }
    }

    /// Sets the deadline.
    pub(crate) fn until(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    /// Whether a reply to what was sent may still come.
    pub(crate) fn expects_answers(&mut self, expects: bool) {
        self.is_unanswered = expects;
    }

    fn write_by<T>(&mut self, write: impl Fn(&socket2::Socket) -> io::Result<T>) -> io::Result<T> {
        let set = |time| self.raw.set_write_timeout(Some(time));
        self.writes.until(self.deadline, set, || write(&self.raw))
    }
}

impl Drop for Socket {
    /// The close drops what was not sent yet and tells the peer so at once, instead of sending it on.
    fn drop(&mut self) {
        if self.is_unanswered {
            // Nothing is lost by an error: the socket is then closed as any other.
            let _ = self.raw.set_linger(Some(Duration::ZERO));
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let set = |time| self.raw.set_read_timeout(Some(time));
        self.reads.until(self.deadline, set, || (&self.raw).read(buf))
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_by(|mut raw| raw.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TimeOut {
    /// Performs one operation, which may block, until the deadline.
    fn until<T>(
        &mut self,
        deadline: Instant,
        set: impl Fn(Duration) -> io::Result<()>,
        mut act: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            let left = time_until(deadline)?;
            // A shorter time-out will do: if it passes, it is set to the rest then.
            if self.0 > left + SLACK {
                set(left)?;
                self.0 = left;
            }
            match act() {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    self.0 = Duration::MAX;
                }
                // By a signal, such as the one that resumes a stopped process: nothing was done.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

/// The time that is left, if any.
fn time_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left.max(LEAST)) }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const TIME: Duration = Duration::from_millis(300);
    const SECOND: Duration = Duration::from_secs(1);

    fn pair() -> (Socket, UnixStream) {
        let (socket, peer) = UnixStream::pair().expect("two sockets");
        (Socket::new(OwnedFd::from(socket).into(), Instant::now() + TIME), peer)
    }

    #[test]
    fn bytes_that_come_one_by_one_have_one_deadline() {
        let (mut socket, mut peer) = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while peer.write_all(b"x").is_ok() {
                    std::thread::sleep(TIME / 10);
                }
            });
            let began = Instant::now();
            socket.until(began + TIME);
            let error = socket.read_exact(&mut [0; 1000]).expect_err("never whole");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(began.elapsed() >= TIME, "{:?}", began.elapsed());
            drop(socket);
        });
    }

    #[test]
    fn a_slow_reader_has_the_same_deadline() {
        let (mut socket, mut peer) = pair();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) && peer.read(&mut [0; 100]).is_ok() {
                    std::thread::sleep(TIME / 10);
                }
            });
            let began = Instant::now();
            socket.until(began + TIME);
            let error = socket.write_all(&vec![0; 100_000_000]).expect_err("never taken");
            done.store(true, Ordering::SeqCst);
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(began.elapsed() >= TIME, "{:?}", began.elapsed());
        });
    }

    #[test]
    fn an_earlier_time_out_does_not_shorten_a_longer_one() {
        let (mut socket, _peer) = pair();
        for time in [TIME / 10, TIME] {
            let began = Instant::now();
            socket.until(began + time);
            assert_eq!(socket.read(&mut [0]).expect_err("nothing").kind(), ErrorKind::TimedOut);
            assert!(began.elapsed() >= time, "{:?}", began.elapsed());
        }
        socket.until(Instant::now());
        assert_eq!(socket.read(&mut [0]).expect_err("no time").kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_time_out_that_is_too_long_is_set_again() {
        let (mut time_out, set) = (TimeOut(Duration::MAX), Cell::new(Duration::MAX));
        for time in [SECOND, TIME, SLACK / 2] {
            let sets = |left| {
                set.set(left);
                Ok(())
            };
            time_out.until(Instant::now() + time, sets, || Ok(())).expect("done");
            assert!(set.get() <= time, "{:?}", set.get());
        }
    }

    #[test]
    fn a_call_that_a_signal_interrupts_is_repeated() {
        let (mut time_out, mut calls) = (TimeOut(Duration::MAX), 0);
        let act = || {
            calls += 1;
            if calls == 1 { Err(ErrorKind::Interrupted.into()) } else { Ok(calls) }
        };
        assert_eq!(time_out.until(Instant::now() + SECOND, |_| Ok(()), act).expect("done"), 2);
    }

    #[test]
    fn the_system_looks_for_a_peer_that_has_vanished() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("a port");
        let socket = Socket::tcp(&at, Instant::now() + SECOND).expect("connected");
        assert!(socket.raw.keepalive().expect("an option"));
        #[cfg(target_os = "linux")]
        assert!(socket.raw.tcp_user_timeout().expect("an option").is_some());
    }

    #[test]
    fn connecting_to_a_path_without_accepts_ends_in_time() {
        let path = std::env::temp_dir().join(format!("fairlock-socket-{}-full", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        listener.bind(&SockAddr::unix(&path).expect("a path")).expect("bound");
        listener.listen(1).expect("listens");
        let mut waiting = Vec::new();
        let (error, took) = loop {
            let began = Instant::now();
            match Socket::unix(&path, began + TIME) {
                Ok(socket) => waiting.push(socket),
                Err(error) => break (error, began.elapsed()),
            }
            assert!(waiting.len() < 10, "its queue never fills up");
        };
        std::fs::remove_file(&path).expect("its path");
        // Linux makes them wait, others refuse.
        assert!(matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ConnectionRefused), "{error}");
        assert!(took < TIME + SECOND, "{took:?}");
    }
}
