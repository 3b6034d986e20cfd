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
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
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
            &format!(
                "req -config openssl.cnf -x509 -extensions ca -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=authority-{}",
                dir.file_name().expect("a dir of our own").to_string_lossy()
            ),
        );
        openssl(
            dir,
            "req -config openssl.cnf -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.csr -subj /CN=127.0.0.1",
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

/// The files of a client's certificate.
#[derive(Clone, Debug)]
pub struct ClientCertificate {
    /// The certificate (PEM).
    pub cert: PathBuf,
    /// Its private key (PEM).
    pub key: PathBuf,
}

impl Certificates {
    /// A client's certificate of this authority, in the name of `subject`, which is a user of PostgreSQL. The file names begin with
    /// `file`.
    pub fn client(&self, file: &str, subject: &str, flaw: Option<Flaw>) -> ClientCertificate {
        let dir = self.ca.parent().expect("a file in our own dir");
        let days = if flaw == Some(Flaw::Expired) { "-1" } else { "2" };
        openssl(
            dir,
            &format!(
                "req -config openssl.cnf -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout {file}.key -out {file}.csr -subj /CN={subject}"
            ),
        );
        openssl(
            dir,
            &format!(
                "x509 -req -in {file}.csr -CA ca.crt -CAkey ca.key -set_serial 3 -days {days} -extfile openssl.cnf -extensions client -out {file}.crt"
            ),
        );
        ClientCertificate { cert: dir.join(format!("{file}.crt")), key: dir.join(format!("{file}.key")) }
    }

    /// The key encrypted with a passphrase, in another file.
    pub fn encrypted(&self, key: &Path, passphrase: &str) -> PathBuf {
        let (dir, to) = (self.ca.parent().expect("a file in our own dir"), key.with_extension("encrypted"));
        let [from, into] = [key, &to].map(|path| path.display().to_string());
        openssl(dir, &format!("pkey -in {from} -aes256 -passout pass:{passphrase} -out {into}"));
        to
    }
}

fn openssl(dir: &Path, args: &str) {
    let output = Command::new("openssl").args(args.split(' ')).current_dir(dir).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|e| panic!("openssl is not installed: run tests/run ({e})"));
    assert!(output.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&output.stderr));
}
