//! A hold ends with the process that has it: with the adopter's, once it was adopted.

use std::fs::File;
use std::time::Duration;

use fairlock_core::backend::{Acquire, Acquired, Backend, Hold, Place as Asked, Renewal, RequestId, only};
use fairlock_core::{ClientId, OwnerId};

use super::files::lock;
use super::store::Place;
use crate::{FileBackend, machine};

const LEASE: Duration = Duration::from_secs(30);
const REQUEST: RequestId = RequestId::new(1);

/// An owner in a process of its own, which lives as long as the file is open.
fn process(backend: &FileBackend) -> (OwnerId, File) {
    let client = ClientId::random().to_string();
    (OwnerId::new(&format!("{client}:1")), machine::take_presence(&backend.files.dir, &client).unwrap())
}

#[test]
fn a_hold_ends_with_the_process_that_adopted_it() {
    let (place, lock) = (Place::new(), lock("x"));
    let backend = place.open();
    let ask = |owner: &OwnerId| {
        only(backend.acquire(&[Acquire::new(Asked::new(&lock, owner, REQUEST), LEASE)])).unwrap()
    };
    for adopts_before in [true, false] {
        let [(former, ends), (adopter, adopter_ends), (third, _lives)] = [(); 3].map(|()| process(&backend));
        let Acquired::Granted { token, .. } = ask(&former) else { panic!() };
        let adopt = || backend.adopt(&Hold::new(&lock, &former, REQUEST, token), &adopter, LEASE).unwrap();
        if adopts_before {
            assert_eq!(adopt(), Renewal::Renewed);
        }
        drop(ends);
        assert_eq!(adopt(), if adopts_before { Renewal::Renewed } else { Renewal::Lost });
        assert_eq!(matches!(ask(&third), Acquired::Queued { .. }), adopts_before);
        drop(adopter_ends);
        let Acquired::Granted { token, .. } = ask(&third) else { panic!() };
        only(backend.release(&[Hold::new(&lock, &third, REQUEST, token)])).unwrap();
    }
}

/// One that has asked for nothing: its process must not be taken for one that has ended.
#[test]
fn a_client_is_present_before_it_adopts() {
    let (place, lock) = (Place::new(), lock("x"));
    let hold = place.client().fair_lock("x").unwrap().lock().unwrap().hand_over().unwrap();
    let (adopter, dir) = (place.client(), place.open().files.dir.clone());
    assert_eq!(machine::lives(&dir, &adopter.id().to_string()), Some(true));
    let guard = adopter.adopt(&hold).unwrap();
    let state = place.open().inspect(&lock, 0..0).unwrap();
    assert_eq!(state.holder().unwrap().owner.client(), adopter.id().to_string());
    guard.unlock().unwrap();
}
