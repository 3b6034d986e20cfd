//! Throw-away certificates, made with the openssl command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A complete configuration, so that the system's own has no effect.
const CONFIG: &str = "\
[req]
distinguished_name = name
prompt = no
[name]
CN = fairlock tests
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
[elsewhere]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth
subjectAltName = DNS:redis.example
";

/// A flaw in a server's certificate from a trusted authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It has expired.
    Expired,
    /// It is for another host.
    WrongHost,
}

/// The files of a new certificate authority, and of one server certificate for 127.0.0.1 and localhost.
#[derive(Clone, Debug)]
pub struct Certificates {
    /// The authority's certificate (PEM), which a client must trust.
    pub ca: PathBuf,
    /// The server's certificate (PEM).
    pub cert: PathBuf,
    /// The server's private key (PEM).
    pub key: PathBuf,
}

impl Certificates {
    /// Makes them in `dir`. Nothing else trusts this authority, and they expire after two days.
    pub fn make(dir: &Path, flaw: Option<Flaw>) -> Certificates {
        let days = if flaw == Some(Flaw::Expired) { "-1" } else { "2" };
        let extensions = if flaw == Some(Flaw::WrongHost) { "elsewhere" } else { "server" };
        fs::write(dir.join("openssl.cnf"), CONFIG).expect("a file can be written in our own dir");
        openssl(
            dir,
            "req -config openssl.cnf -x509 -extensions ca -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2",
        );
        openssl(
            dir,
            "req -config openssl.cnf -new -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=127.0.0.1",
        );
        openssl(
            dir,
            &format!(
                "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -set_serial 2 -days {days} -extfile openssl.cnf -extensions {extensions} -out server.crt"
            ),
        );
        Certificates { ca: dir.join("ca.crt"), cert: dir.join("server.crt"), key: dir.join("server.key") }
    }
}

fn openssl(dir: &Path, args: &str) {
    let output = Command::new("openssl").args(args.split(' ')).current_dir(dir).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|e| panic!("openssl is not installed: run tests/run ({e})"));
    assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
}
