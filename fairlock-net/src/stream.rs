//! A connection to a server, in cleartext or by TLS, on which every wait ends at one deadline, however slowly the peer sends or reads.
//!
//! The operating system has a time-out for each single read and write, which a peer that sends one byte at a time never
//! exceeds. Here the time-out is the time until the deadline. It is set again only where that matters, so a quick
//! answer costs no further system call. The look-up of a host's name, which has no time-out, runs on a thread of its own.

#[cfg(feature = "tls")]
mod tls;

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use socket2::{Domain, SockAddr, TcpKeepalive, Type};

#[cfg(feature = "tls")]
use self::tls::Tls;
use crate::endpoint::Endpoint;
use crate::trust::{TlsFailure, TlsSettings};

/// A connection to a server. A wait that has not ended at the deadline ends with the error `TimedOut`. A deadline stays until the next
/// one is set. Reads are unbuffered.
///
/// If what was sent is unanswered when it is dropped, it is closed by a reset: after a plain close the system would go on sending a
/// request for minutes, and the server would carry it out long after its repeat on another connection. (A Unix socket has handed
/// everything over by then, and is just closed.)
pub struct Stream(Carrier);

enum Carrier {
    Cleartext(Socket),
    #[cfg(feature = "tls")]
    Tls(Box<Tls>),
}

impl Stream {
    /// Connects until `deadline`: looks the host's name up and tries its addresses, each for a fair part of the time that is left.
    ///
    /// # Errors
    /// The error of the last address, the error of the look-up (kind `Other`, in words), or `TimedOut`.
    pub fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<Stream> {
        let socket = match endpoint {
            Endpoint::Unix(path) => Socket::unix(path, deadline)?,
            Endpoint::Tcp { host, port } => dial(Resolver::system(), host, *port, deadline)?,
        };
        Ok(Stream(Carrier::Cleartext(socket)))
    }

    /// Goes on by TLS, from the next byte on in both directions. The handshake is done within the deadline. The certificate has to be for
    /// `host`, and signed by an authority of the system, or by one that `SSL_CERT_FILE` names.
    ///
    /// # Errors
    /// See [`TlsFailure`]. Without the feature `tls` it is always `NotBegun`.
    pub fn secure(self, host: &str) -> Result<Stream, TlsFailure> {
        self.secure_with(host, &TlsSettings::default())
    }

    /// Goes on by TLS with these settings.
    ///
    /// # Errors
    /// See [`TlsFailure`]. Without the feature `tls` it is always `NotBegun`.
    #[cfg(feature = "tls")]
    pub fn secure_with(self, host: &str, settings: &TlsSettings) -> Result<Stream, TlsFailure> {
        let socket = match self.0 {
            Carrier::Cleartext(socket) => socket,
            Carrier::Tls(_) => return Err(TlsFailure::NotBegun("the connection has TLS".to_owned())),
        };
        let mut tls = Tls::over(socket, host, settings)?;
        tls.shake_hands()?;
        Ok(Stream(Carrier::Tls(Box::new(tls))))
    }

    /// Goes on by TLS, which needs the feature `tls`.
    ///
    /// # Errors
    /// Always `NotBegun`, without the feature.
    #[cfg(not(feature = "tls"))]
    pub fn secure_with(self, _host: &str, _settings: &TlsSettings) -> Result<Stream, TlsFailure> {
        Err(TlsFailure::NotBegun("a TLS connection needs the feature tls".to_owned()))
    }

    /// Sets the deadline for what is read from now on.
    pub fn until(&mut self, deadline: Instant) {
        self.socket().deadline = deadline;
    }

    /// Sends all of it until `deadline`, which holds for the answers too, until another one is set. From now on a reply may come;
    /// [`all_answered`](Stream::all_answered) follows the last one.
    ///
    /// # Errors
    /// How much was sent is not known. The stream is of no more use.
    pub fn send(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.socket().is_unanswered = true;
        self.until(deadline);
        match &mut self.0 {
            Carrier::Cleartext(socket) => socket.write_all(bytes),
            #[cfg(feature = "tls")]
            Carrier::Tls(tls) => {
                tls.write_all(bytes)?;
                // It may still buffer some of it.
                tls.flush()
            }
        }
    }

    /// All replies to what was sent have been read.
    pub fn all_answered(&mut self) {
        self.socket().is_unanswered = false;
    }

    fn socket(&mut self) -> &mut Socket {
        match &mut self.0 {
            Carrier::Cleartext(socket) => socket,
            #[cfg(feature = "tls")]
            Carrier::Tls(tls) => tls.socket(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Carrier::Cleartext(socket) => socket.read(buf),
            #[cfg(feature = "tls")]
            Carrier::Tls(tls) => tls.read(buf),
        }
    }
}

fn dial(resolver: &'static Resolver, host: &str, port: u16, deadline: Instant) -> io::Result<Socket> {
    let found = resolver.addresses(host, port, deadline)?;
    let mut last = ErrorKind::TimedOut.into();
    for (tried, addr) in found.iter().enumerate() {
        // A server that does not know its own address may announce 0.0.0.0. For a client, 0.0.0.0 is the client's own machine.
        if addr.ip().is_unspecified() {
            last = io::Error::other(format!("{} is no address of a server", addr.ip()));
            continue;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(found.len() - tried).unwrap_or(1);
        match Socket::tcp(addr, Instant::now() + share) {
            Ok(mut socket) => {
                socket.deadline = deadline;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// How late a wait may end.
const SLACK: Duration = Duration::from_millis(5);
/// The shortest time-out: zero would mean none.
const LEAST: Duration = Duration::from_millis(1);

/// A TCP or Unix socket.
struct Socket {
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
    fn tcp(addr: &SocketAddr, deadline: Instant) -> io::Result<Socket> {
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
    fn unix(path: &Path, deadline: Instant) -> io::Result<Socket> {
        let (raw, addr) = (socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(path)?);
        let mut socket = Socket::new(raw, deadline);
        socket.write_by(|raw| raw.connect(&addr))?;
        Ok(socket)
    }

    fn new(raw: socket2::Socket, deadline: Instant) -> Socket {
        let none = TimeOut(Duration::MAX);
        Socket { raw, deadline, reads: none, writes: none, is_unanswered: false }
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

/// How long the name server has to answer if addresses are known.
const PROMPTLY: Duration = Duration::from_millis(200);
/// The most hosts that the resolver remembers: a cluster whose nodes come and go under new names must not fill the memory.
const MOST_HOSTS: usize = 256;

/// Asks for a host's addresses, without a time limit; the port means nothing.
type LookUp = Box<dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// Looks up a host's addresses within a deadline; the operating system's look-up has none.
///
/// A look-up runs on its own thread (`fairlock-dns`), at most one for a host, and all callers that connect to the host wait for
/// this thread. If the name server is silent, the thread stays until the system gives up, 10 to 28 seconds with common settings.
/// The thread holds nothing but the host's entry here.
///
/// A prompt answer counts, even that there is no such host: the server may have moved, and its old address may belong to
/// a replica now, or to another system. Only without a prompt answer do the last known addresses count; from then on
/// they count at once, until the name server is quick again.
struct Resolver {
    look_up: LookUp,
    hosts: Mutex<HashMap<String, Arc<Host>>>,
}

#[derive(Default)]
struct Host {
    state: Mutex<ResolverState>,
    /// Signals the end of a look-up.
    ended: Condvar,
}

#[derive(Default)]
struct ResolverState {
    /// A look-up is under way.
    looking: bool,
    /// How many have ended, and why the last one failed, if it did.
    ended: u64,
    failed: Option<String>,
    /// The addresses from the last successful look-up.
    known: Vec<SocketAddr>,
    /// The name server was late, and has not answered since.
    slow: bool,
}

impl Resolver {
    /// The operating system's, shared by the process: one look-up a host, however many backends use it.
    fn system() -> &'static Resolver {
        static NAMES: LazyLock<Resolver> =
            LazyLock::new(|| Resolver::new(|host| Ok((host, 0).to_socket_addrs()?.collect())));
        &NAMES
    }

    fn new(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Resolver {
        Resolver { look_up: Box::new(look_up), hosts: Mutex::default() }
    }

    /// The addresses of a host, at least one.
    ///
    /// # Errors
    /// In words: there is no such host, or no answer until then.
    fn addresses(&'static self, host: &str, port: u16, until: Instant) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let mut found = self.ask(host, until)?;
        found.iter_mut().for_each(|found| found.set_port(port));
        Ok(found)
    }

    fn ask(&'static self, name: &str, until: Instant) -> io::Result<Vec<SocketAddr>> {
        let host = self.host(name);
        let mut state = host.state.lock();
        if !state.looking {
            self.start(name, &host, &mut state)?;
        }
        let (before, until) = (state.ended, state.patience(Instant::now(), until));
        host.ended.wait_while_until(&mut state, |state| state.ended == before, until);
        if state.ended != before {
            return match &state.failed {
                None => Ok(state.known.clone()),
                Some(why) => Err(io::Error::other(why.clone())),
            };
        }
        state.slow = true;
        if state.known.is_empty() {
            return Err(io::Error::other("the host's name was not looked up in time"));
        }
        Ok(state.known.clone())
    }

    fn host(&self, name: &str) -> Arc<Host> {
        let mut hosts = self.hosts.lock();
        if let Some(host) = hosts.get(name) {
            return Arc::clone(host);
        }
        if hosts.len() >= MOST_HOSTS {
            // A host with a running look-up stays, so that it gets no second thread.
            hosts.retain(|_, host| host.state.lock().looking);
        }
        Arc::clone(hosts.entry(name.to_owned()).or_default())
    }

    fn start(&'static self, name: &str, host: &Arc<Host>, state: &mut ResolverState) -> io::Result<()> {
        let (name, host) = (name.to_owned(), Arc::clone(host));
        let look_up = move || {
            let began = Instant::now();
            let found = (self.look_up)(&name);
            let mut state = host.state.lock();
            state.looking = false;
            state.ended += 1;
            state.slow = began.elapsed() > PROMPTLY;
            match found {
                Ok(found) if found.is_empty() => {
                    state.failed = Some("the host's name has no address".to_owned());
                }
                Ok(found) => (state.known, state.failed) = (found, None),
                Err(error) => state.failed = Some(format!("the host's name is not known ({error})")),
            }
            drop(state);
            host.ended.notify_all();
        };
        let thread = thread::Builder::new().name("fairlock-dns".to_owned()).spawn(look_up);
        thread.map_err(|error| {
            io::Error::other(format!("can't start a thread to look up the host's name ({error})"))
        })?;
        // The thread ends the look-up under the mutex that is held here, so after this.
        state.looking = true;
        Ok(())
    }
}

impl ResolverState {
    /// How long to wait for the look-up.
    fn patience(&self, now: Instant, until: Instant) -> Instant {
        match (self.known.is_empty(), self.slow) {
            (true, _) => until,
            (false, true) => now,
            // Half of the time is left for connecting.
            (false, false) => now + PROMPTLY.min(until.saturating_duration_since(now) / 2),
        }
    }
}

#[cfg(test)]
mod resolver_tests;
#[cfg(test)]
mod tests;
