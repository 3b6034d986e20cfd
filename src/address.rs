//! A store by its address, so that a program's configuration names the store.

use std::sync::Arc;
#[cfg(feature = "memory")]
use std::sync::OnceLock;

use fairlock_core::backend::{Backend, BackendError, BackendErrorKind, Finding};
use fairlock_core::{AsyncClient, Client, Result};

/// Connects to the store at this address, with the default settings:
///
/// | address | store |
/// | --- | --- |
/// | `redis://[user][:password@]host[:port][/db]`, `rediss://…` (TLS), `unix:///path` | a Redis server |
/// | `redis+sentinel://host[:port][,host…]/master`, `redis+cluster://host[:port][,host…]` | several; also `rediss+…` |
/// | `postgres://user[:password]@host[:port][,host…]/database[?options]` | PostgreSQL (feature `postgres`) |
/// | `file:///path/of/a/directory` | files, for the processes of one machine |
/// | `memory:` | this process; all clients that name it share one store |
///
/// ```
/// let client = fairlock::connect("memory:")?; // from the configuration
/// let guard = client.fair_lock("lock:orders")?.lock()?;
/// # Ok::<(), fairlock::Error>(())
/// ```
///
/// It blocks the thread; tasks have [`connect_async`]. For other settings of the client: `Client::builder(fairlock::open(address)?)`; for
/// those of a store, its own builder. The builders have `build_async` and `connect_async` for tasks.
///
/// # Errors
/// `InvalidConfig` for an address that no store has, or whose store's feature is off; and those of the store. No message contains a
/// password.
pub fn connect(address: &str) -> Result<Client> {
    Client::new(open(address)?)
}

/// [`connect`] for tasks: connects on a thread of its own. If the future is dropped, the client ends.
///
/// ```
/// # async fn run() -> fairlock::Result<()> {
/// let client = fairlock::connect_async("redis://127.0.0.1:6379").await?;
/// client.fair_lock("lock:orders")?.with(async |hold| println!("token {}", hold.token())).await
/// # }
/// ```
///
/// # Errors
/// As [`connect`].
pub async fn connect_async(address: &str) -> Result<AsyncClient> {
    let address = address.to_owned();
    fairlock_core::connecting(move || Ok(connect(&address)?.to_async())).await
}

/// The backend at this address, for [`Client::builder`]; [`connect`] has the addresses.
///
/// # Errors
/// As [`connect`].
pub fn open(address: &str) -> Result<Arc<dyn Backend>> {
    let scheme = address.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        #[cfg(feature = "redis")]
        _ if is_of_redis(scheme) => Ok(Arc::new(fairlock_redis::RedisBackend::connect(address)?)),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => Ok(Arc::new(fairlock_postgres::PostgresBackend::connect(address)?)),
        #[cfg(all(feature = "file", unix))]
        "file" => Ok(Arc::new(fairlock_file::FileBackend::open(directory(address)?)?)),
        #[cfg(feature = "memory")]
        "memory" => {
            static OF_THIS_PROCESS: OnceLock<fairlock_memory::MemoryBackend> = OnceLock::new();
            Ok(Arc::new(OF_THIS_PROCESS.get_or_init(fairlock_memory::MemoryBackend::new).clone()))
        }
        _ => Err(refused(&unknown(scheme))),
    }
}

/// What the `doctor` of the store at this address finds: whether locks are safe there. [`connect`] has the addresses; memory has no findings.
///
/// # Errors
/// As [`connect`]; and those of the store's own `doctor`.
pub fn doctor(address: &str) -> Result<Vec<Finding>> {
    let scheme = address.split_once(':').map_or("", |(scheme, _)| scheme);
    match scheme {
        #[cfg(feature = "redis")]
        _ if is_of_redis(scheme) => fairlock_redis::RedisBackend::connect(address)?.doctor(),
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => fairlock_postgres::PostgresBackend::connect(address)?.doctor(),
        #[cfg(all(feature = "file", unix))]
        "file" => fairlock_file::FileBackend::open(directory(address)?)?.doctor(),
        _ => open(address).map(|_| Vec::new()),
    }
}

#[cfg(all(feature = "file", unix))]
fn directory(address: &str) -> Result<&str> {
    let dir =
        address.strip_prefix("file://").or(address.strip_prefix("file:")).filter(|dir| dir.starts_with('/'));
    dir.ok_or_else(|| {
        refused("a directory's address is file:// with an absolute path, as in file:///run/lock/app")
    })
}

/// Redis itself says which of them it has.
fn is_of_redis(scheme: &str) -> bool {
    scheme.starts_with("redis") || scheme.starts_with("valkey") || scheme == "unix"
}

/// Says which feature is off, or which addresses there are.
fn unknown(scheme: &str) -> String {
    let store = match scheme {
        "postgres" | "postgresql" => "postgres",
        "file" | "memory" => scheme,
        _ if is_of_redis(scheme) => "redis",
        _ => {
            return "the store's address has to begin with redis://, rediss://, redis+sentinel://, redis+cluster://, unix://, \
                    postgres://, file:// or memory:"
                .to_owned();
        }
    };
    let only = if store == "file" { ", and only on Unix" } else { "" };
    format!("an address that begins with {scheme}: needs the feature `{store}` of fairlock{only}")
}

fn refused(reason: &str) -> fairlock_core::Error {
    BackendError::new(BackendErrorKind::InvalidConfig, reason.to_owned()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_no_store_has_is_refused_without_its_password() {
        for address in
            ["", "localhost", "http://a:canary@b", "app:canary@host", "redis-tls://:canary@a", "/run"]
        {
            let said = connect(address).map(drop).unwrap_err().to_string();
            assert!(said.starts_with("invalid configuration: "), "{said}");
            assert!(!said.contains("canary"), "{said}");
        }
    }

    #[test]
    #[cfg(not(feature = "postgres"))]
    fn a_store_whose_feature_is_off_is_named() {
        let said = open("postgres://a:canary@b/c").map(drop).unwrap_err().to_string();
        assert!(said.ends_with("begins with postgres: needs the feature `postgres` of fairlock"), "{said}");
    }

    #[test]
    #[cfg(feature = "memory")]
    fn clients_that_name_memory_share_one_store() -> Result<()> {
        let [ours, theirs] = [connect("memory:")?, connect("memory:")?];
        let guard = ours.fair_lock("address:shared")?.lock()?;
        assert!(theirs.fair_lock("address:shared")?.try_lock()?.is_busy());
        guard.unlock()
    }

    #[test]
    #[cfg(all(feature = "file", unix))]
    fn a_directory_is_named_by_an_absolute_path() -> Result<()> {
        let dir = std::env::temp_dir().join(format!("fairlock-address-{}", std::process::id()));
        let [ours, theirs] =
            [connect(&format!("file://{}", dir.display()))?, connect(&format!("file:{}", dir.display()))?];
        let guard = ours.fair_lock("orders")?.lock()?;
        assert!(theirs.fair_lock("orders")?.try_lock()?.is_busy());
        guard.unlock()?;
        drop((ours, theirs));
        _ = std::fs::remove_dir_all(dir);
        let said = connect("file://relative/path").map(drop).unwrap_err().to_string();
        assert!(said.contains("absolute path"), "{said}");
        Ok(())
    }
}
