//! Without the feature `tls`. `.ci/run` runs this by itself: in `tests/run` the packages have the features of all.
#![cfg(not(feature = "tls"))]

use fairlock::{Error, PostgresBackend};

/// Nothing is sent in the clear to a server that is to be asked by TLS.
#[test]
fn an_address_that_asks_for_tls_is_refused_at_once() {
    let refused = PostgresBackend::connect("postgres://a@127.0.0.1:1/b?sslmode=require").err();
    assert!(matches!(refused, Some(Error::InvalidConfig { .. })), "{refused:?}");
}
