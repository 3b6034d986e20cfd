//! What a backend connects to: one server, a master that sentinels name, or a cluster.

use std::sync::Arc;

use fairlock_core::backend::{BackendError, Login, Logins};
use fairlock_net::bare_delimiter;
#[cfg(feature = "rustls-0_23")]
use fairlock_net::{TlsSettings, Trust};

use super::commands::Pool;
use super::connection::{Address, AddressMap, SERVER_PORT};
use super::settings::{Settings, invalid};
use super::topology::{Arrangement, Cluster, Sentinel, Servers, Single};

/// The port of sentinels whose address names none.
const SENTINEL_PORT: u16 = 26379;

/// An address, read but not yet connected to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Single(Box<Address>),
    /// `servers` has the login, TLS and database of the servers.
    Sentinel {
        sentinels: Vec<Address>,
        servers: Box<Address>,
        master: String,
    },
    Cluster(Vec<Address>),
}

impl Target {
    /// Reads the address of one server (see [`Address::parse`]), or
    /// `redis+sentinel://[user][:password@]host[:port][,host[:port]…]/master[/db]`, or
    /// `redis+cluster://[user][:password@]host[:port][,host[:port]…]`; with `rediss+…` for TLS. User and password are for
    /// all servers, the sentinels as well.
    ///
    /// # Errors
    /// `InvalidConfig`; as with [`Address::parse`] nothing of the address is repeated.
    pub(crate) fn parse(url: &str) -> Result<Target, BackendError> {
        let Some((scheme, rest)) = url.split_once("://") else {
            return single(url);
        };
        let transport = match scheme {
            "sentinel" | "redis+sentinel" | "cluster" | "redis+cluster" => "redis",
            "rediss+sentinel" | "rediss+cluster" => "rediss",
            _ => return single(url),
        };
        if let Some(bare) = bare_delimiter(rest) {
            return Err(refuse(bare));
        }
        let (rest, options) = rest.split_at(rest.find('?').unwrap_or(rest.len()));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let urls = |db: &str| -> Vec<String> {
            hosts.split(',').map(|host| format!("{transport}://{login}{host}/{db}{options}")).collect()
        };
        if scheme.ends_with("cluster") {
            return Target::cluster(&urls(path));
        }
        let (master, db) = path.split_once('/').unwrap_or((path, ""));
        Target::sentinel(&urls(db), master)
    }

    /// The server of a client of the crate `redis`.
    #[cfg(feature = "redis-1")]
    pub(crate) fn of(info: &redis::ConnectionInfo) -> Result<Target, BackendError> {
        Address::of(info).map(|address| Target::Single(Box::new(address)))
    }

    /// The master of this name, found through these sentinels.
    pub(crate) fn sentinel(urls: &[impl AsRef<str>], master: &str) -> Result<Target, BackendError> {
        // A master's name is shown in messages. These characters are all that sentinels accept, and they keep out a URL with
        // a password.
        if master.is_empty() || !master.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            return Err(refuse("the master's name is missing, or not made of letters, digits and . - _"));
        }
        let sentinels = servers(urls, SENTINEL_PORT)?;
        // A sentinel that was reached shows nothing of the servers' certificates.
        let servers = Box::new(sentinels[0].clone().changing_apart());
        Ok(Target::Sentinel { sentinels, servers, master: master.to_owned() })
    }

    /// The cluster that these nodes belong to.
    pub(crate) fn cluster(urls: &[impl AsRef<str>]) -> Result<Target, BackendError> {
        let nodes = servers(urls, SERVER_PORT)?;
        if nodes.iter().any(|node| node.db != 0) {
            return Err(refuse("a cluster has no databases but 0"));
        }
        Ok(Target::Cluster(nodes))
    }

    /// Another login for the sentinels; two empty strings stand for none.
    ///
    /// # Errors
    /// `InvalidConfig` where there are no sentinels.
    pub(crate) fn with_sentinel_login(mut self, login: &Login) -> Result<Target, BackendError> {
        let Target::Sentinel { sentinels, .. } = &mut self else {
            let what = "there is a login for sentinels, and the address names none";
            return Err(invalid(what.to_owned()).about_setting("sentinel_login"));
        };
        let user = login.user().unwrap_or_default();
        sentinels.iter_mut().for_each(|sentinel| sentinel.set_login(user, login.password()));
        Ok(self)
    }

    /// TLS by this configuration, in place of the addresses' files.
    ///
    /// # Errors
    /// `InvalidConfig` where an address has no TLS, or names files.
    #[cfg(feature = "rustls-0_23")]
    pub(crate) fn with_tls(
        mut self,
        config: &Arc<fairlock_net::rustls::ClientConfig>,
    ) -> Result<Target, BackendError> {
        for address in self.addresses() {
            let what = match &address.tls {
                Some(
                    TlsSettings::Files { trust: Trust::System, identity: None } | TlsSettings::Config(_),
                ) => {
                    address.tls = Some(TlsSettings::Config(Arc::clone(config)));
                    address.hidden_tls = None;
                    continue;
                }
                Some(_) => {
                    "the address has sslrootcert, sslcert or sslkey as well: leave out one or the other"
                }
                None if address.host().is_none() => "the address is a socket's path, which has no TLS",
                None => "the address has no TLS: write rediss for redis",
            };
            return Err(invalid(format!("`tls` is set, and {what}")));
        }
        Ok(self)
    }

    /// How the servers are reached that other servers announce.
    pub(crate) fn with_map(mut self, map: &AddressMap) -> Target {
        self.addresses().into_iter().for_each(|address| address.map = Some(map.clone()));
        self
    }

    /// Logs in to all servers as this says, and to the sentinels.
    pub(crate) fn set_logins(&mut self, logins: &Logins) {
        self.addresses().into_iter().for_each(|address| address.set_logins(logins));
    }

    fn addresses(&mut self) -> Vec<&mut Address> {
        match self {
            Target::Single(address) => vec![address],
            Target::Sentinel { sentinels, servers, .. } => {
                sentinels.iter_mut().chain([&mut **servers]).collect()
            }
            Target::Cluster(nodes) => nodes.iter_mut().collect(),
        }
    }

    pub(crate) fn arrangement(&self) -> Arrangement {
        match self {
            Target::Single(_) => Arrangement::Single,
            Target::Sentinel { .. } => Arrangement::Sentinels,
            Target::Cluster(_) => Arrangement::Cluster,
        }
    }

    /// Connects, so that a configuration that cannot work is found now.
    pub(crate) fn connect(self, settings: &Settings) -> Result<Servers, BackendError> {
        Ok(match self {
            Target::Single(address) => {
                if let Some(hidden) = address.hidden_tls {
                    return Err(invalid(format!(
                        "the client's TLS can't be used: {hidden}; `tls` gives a configuration in its place"
                    )));
                }
                let pool = Pool::of_one_address(*address, settings);
                pool.check()?;
                Arc::new(Single { pool: Arc::new(pool), settings: settings.clone() })
            }
            Target::Sentinel { sentinels, servers, master } => {
                let sentinels = sentinels.into_iter().map(Address::without_db).collect();
                Sentinel::connect(sentinels, *servers, &master, settings)?
            }
            Target::Cluster(nodes) => Cluster::connect(nodes, settings)?,
        })
    }
}

fn single(url: &str) -> Result<Target, BackendError> {
    Address::parse(url).map(|address| Target::Single(Box::new(address)))
}

/// The addresses of several servers of one system, all reached over TCP.
fn servers(urls: &[impl AsRef<str>], port: u16) -> Result<Vec<Address>, BackendError> {
    if urls.is_empty() {
        return Err(refuse("there is none"));
    }
    let mut addresses: Vec<Address> =
        urls.iter().map(|url| Address::parse_with(url.as_ref(), port)).collect::<Result<_, _>>()?;
    if addresses.iter().any(|address| address.host().is_none()) {
        return Err(refuse("sentinels and the nodes of a cluster are not reached over a socket's path"));
    }
    if let [first, others @ ..] = &mut addresses[..] {
        others.iter_mut().for_each(|other| other.changes_with(first));
    }
    Ok(addresses)
}

fn refuse(what: &str) -> BackendError {
    invalid(format!("the servers' addresses can't be read: {what}"))
}

#[cfg(test)]
mod tests {
    use fairlock_core::backend::BackendErrorKind;

    use super::*;
    use crate::net::connection::Failure;

    fn sentinels(url: &str) -> (Vec<String>, String) {
        match Target::parse(url).expect(url) {
            Target::Sentinel { sentinels, master, .. } => {
                (sentinels.iter().map(Address::to_string).collect(), master)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_text_names_several_sentinels() {
        let both = vec!["h1:26379".to_owned(), "h2:7".to_owned()];
        assert_eq!(sentinels("sentinel://h1,h2:7/mymaster"), (both.clone(), "mymaster".to_owned()));
        assert_eq!(sentinels("redis+sentinel://u:p%40@h1,h2:7/a.b-c_1"), (both, "a.b-c_1".to_owned()));
        assert_eq!(sentinels("redis+sentinel://[::1]/m/3").0, ["[::1]:26379/3"]);
        assert_eq!(sentinels("redis+sentinel://[::1]:5/m").0, ["[::1]:5"]);
        let Ok(Target::Sentinel { sentinels, .. }) =
            Target::sentinel(&["redis://:pw@h1", "redis://:pw@h2:1/"], "m")
        else {
            panic!("not read")
        };
        assert_eq!(sentinels[0].credentials(), Some((None, "pw")));
        assert_eq!((sentinels[0].to_string(), sentinels[1].to_string()), ("h1:26379".into(), "h2:1".into()));
    }

    #[test]
    fn one_text_names_several_nodes() {
        for (url, shown) in [
            ("cluster://h1,h2:7", "h1:6379 h2:7"),
            ("redis+cluster://:pw@h1:1,[::1]", "h1:1 [::1]:6379"),
            ("redis+cluster://h1/", "h1:6379"),
        ] {
            let Target::Cluster(nodes) = Target::parse(url).expect(url) else { panic!("{url}") };
            let nodes: Vec<String> = nodes.iter().map(Address::to_string).collect();
            assert_eq!(nodes.join(" "), shown);
        }
    }

    #[cfg(feature = "rustls-0_23")]
    #[test]
    fn a_configuration_of_tls_needs_addresses_with_tls() {
        let config = fairlock_net::rustls::ClientConfig::builder_with_provider(Arc::new(
            fairlock_net::rustls::crypto::ring::default_provider(),
        ));
        let config = config.with_safe_default_protocol_versions().expect("versions");
        let config = config.with_root_certificates(fairlock_net::rustls::RootCertStore::empty());
        let config = Arc::new(config.with_no_client_auth());
        let with = |url: &str| Target::parse(url).expect(url).with_tls(&config);
        for (url, what) in [
            ("redis://h", "write rediss for redis"),
            ("unix:///p", "a socket's path"),
            ("rediss://h?sslrootcert=f", "leave out one or the other"),
        ] {
            let error = with(url).expect_err(url);
            assert!(error.message().contains(what), "{error}");
        }
        for url in ["rediss://h", "rediss+sentinel://h/m", "rediss+cluster://h"] {
            let mut target = with(url).expect(url);
            for address in target.addresses() {
                assert!(matches!(address.tls, Some(TlsSettings::Config(_))), "{url}");
            }
        }
    }

    #[test]
    fn each_address_gets_the_function_for_logins() {
        let logins = Logins::new(|| Ok::<_, String>(Login::new("pw")));
        let refused = Failure::refused("WRONGPASS", "x");
        for (url, count) in [("redis://u:p@h", 1), ("sentinel://u:p@h1,h2/m", 3), ("cluster://u:p@h1,h2", 2)]
        {
            let mut target = Target::parse(url).expect(url);
            target.set_logins(&logins);
            let names = |address: &Address| address.refused(refused.clone()).to_string().contains("user `u`");
            assert_eq!(
                target.addresses().into_iter().filter(|address| names(address)).count(),
                count,
                "{url}"
            );
        }
    }

    #[test]
    fn a_refusal_repeats_nothing_of_the_address() {
        for url in [
            "redis+sentinel://:canary/x@h1/m",
            "redis+sentinel://user:1/canary@h/m",
            "redis+sentinel://u:canary@/m",
            "redis+sentinel://u:canary@h1",
            "redis+sentinel://u:canary@h1,/m",
            "redis+sentinel://u:canary@h1/m?x=canary",
            "redis+sentinel://u:canary@h1/m/x",
            "redis+sentinel://:can#ary@h1/m",
            "redis+cluster://:canary@h1/2",
            "redis+cluster://:canary@h1,h2:x",
            "redis+cluster://:can/ary@h1",
            "redis+cluster://:canary@",
        ] {
            let error = Target::parse(url).expect_err(url);
            assert_eq!(error.kind(), BackendErrorKind::InvalidConfig);
            assert!(!error.message().contains("canary"), "{url}: {error}");
        }
        assert!(Target::sentinel(&["unix:///p"], "m").is_err());
        assert!(Target::cluster(&["redis://h/2"]).is_err());
        assert!(Target::sentinel(&[] as &[&str], "m").is_err());
        let login = Login::new("canary").with_user("u");
        let without = Target::parse("redis://h").expect("read").with_sentinel_login(&login);
        assert_eq!(without.expect_err("no sentinel").kind(), BackendErrorKind::InvalidConfig);
        let with = Target::parse("sentinel://h/m").expect("read").with_sentinel_login(&login);
        assert!(!format!("{with:?}").contains("canary"));
    }
}
