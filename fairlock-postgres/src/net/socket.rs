//! A connected socket on which every wait ends at one deadline. To be replaced by that of fairlock-net.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, TcpKeepalive, Type};

/// The shortest time-out: zero would mean none.
const LEAST: Duration = Duration::from_millis(1);

/// A TCP or Unix socket.
pub(crate) struct Socket {
    raw: socket2::Socket,
    deadline: Instant,
}

/// Ends a socket on which another thread waits.
pub(crate) struct Closer(socket2::Socket);

impl Closer {
    pub(crate) fn close(&self) {
        // It may be closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

impl Socket {
    pub(crate) fn tcp(addr: &SocketAddr, deadline: Instant) -> io::Result<Socket> {
        let raw = socket2::Socket::from(TcpStream::connect_timeout(addr, time_until(deadline)?)?);
        raw.set_tcp_nodelay(true)?;
        let keep_alive =
            TcpKeepalive::new().with_time(Duration::from_secs(15)).with_interval(Duration::from_secs(5));
        raw.set_tcp_keepalive(&keep_alive)?;
        #[cfg(target_os = "linux")]
        raw.set_tcp_user_timeout(Some(Duration::from_secs(20)))?;
        Ok(Socket { raw, deadline })
    }

    pub(crate) fn unix(path: &Path, deadline: Instant) -> io::Result<Socket> {
        let raw = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
        raw.set_write_timeout(Some(time_until(deadline)?))?;
        raw.connect(&SockAddr::unix(path)?)?;
        Ok(Socket { raw, deadline })
    }

    pub(crate) fn until(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    pub(crate) fn closer(&self) -> io::Result<Closer> {
        self.raw.try_clone().map(Closer)
    }

    fn repeat<T>(
        &self,
        set: impl Fn(Duration) -> io::Result<()>,
        mut act: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            set(time_until(self.deadline)?)?;
            match act() {
                // The time-out passed, or a signal came: the deadline decides.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                done => return done,
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.repeat(|time| self.raw.set_read_timeout(Some(time)), || (&self.raw).read(buf))
    }
}

impl Write for Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.repeat(|time| self.raw.set_write_timeout(Some(time)), || (&self.raw).write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn time_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left.max(LEAST)) }
}
