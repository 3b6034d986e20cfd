//! A TCP port of 127.0.0.1 that no other test takes while it is reserved.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

/// The range lies below the ports that systems use for outgoing connections (from 32768 on Linux, 49152 elsewhere).
/// So no client can occupy the port of a server that restarts. A cluster node's second port is its first plus 10,000,
/// which is outside both ranges.
const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;

/// A port reserved among all tests on this machine, until this value is dropped or its process ends.
///
/// The reservation is a UDP socket bound to the same number. UDP and TCP ports are separate, so a server can bind,
/// leave and rebind the TCP port while no other test takes it.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: Option<UdpSocket>,
}

impl Port {
    /// Reserves a port on which nothing listens.
    pub fn reserve() -> Port {
        let start = RandomState::new().build_hasher().finish() % u64::from(COUNT);
        for step in 0..u64::from(COUNT) {
            let number = FIRST + u16::try_from((start + step) % u64::from(COUNT)).expect("below COUNT");
            let Ok(reservation) = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)) else { continue };
            // Another program may listen there.
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Port { number, _reservation: Some(reservation) };
            }
        }
        panic!("no free port between {FIRST} and {}", FIRST + COUNT - 1);
    }

    /// The port of a server that another process has started: it is reserved by that server alone.
    pub(crate) fn of_another(number: u16) -> Port {
        Port { number, _reservation: None }
    }

    /// The port number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_given_once_and_can_be_bound_repeatedly() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 50);
        for _ in 0..3 {
            TcpListener::bind((Ipv4Addr::LOCALHOST, numbers[0])).unwrap();
        }
    }
}
