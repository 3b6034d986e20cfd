//! Where a server listens.

use std::fmt;
use std::path::PathBuf;

/// How a server is reached. `Display` shows `host:port`, `[address]:port` or the path, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Over TCP.
    Tcp {
        /// A name, or an address without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// Over a Unix socket, at this path.
    Unix(PathBuf),
}

impl Endpoint {
    /// The host, if it is reached over TCP.
    pub fn host(&self) -> Option<&str> {
        match self {
            Endpoint::Tcp { host, .. } => Some(host),
            Endpoint::Unix(_) => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = match self {
            Endpoint::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Endpoint::Tcp { host, port } => format!("{host}:{port}"),
            Endpoint::Unix(path) => path.display().to_string(),
        };
        // It comes from a setting and is shown in one-line messages.
        f.write_str(&shown.replace(char::is_control, " "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_shown_in_one_line() {
        let tcp = |host: &str| Endpoint::Tcp { host: host.to_owned(), port: 7 };
        for (endpoint, shown) in [
            (tcp("a.host"), "a.host:7"),
            (tcp("::1"), "[::1]:7"),
            (tcp("two\nlines"), "two lines:7"),
            (Endpoint::Unix("/run/a server".into()), "/run/a server"),
        ] {
            assert_eq!(endpoint.to_string(), shown);
        }
        assert_eq!((tcp("a.host").host(), Endpoint::Unix("/run".into()).host()), (Some("a.host"), None));
    }
}
