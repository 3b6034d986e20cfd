//! What other users put in the way: links, directories that they can rename, names of files that are not ours.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fairlock_core::backend::{Backend, BackendErrorKind, LockId};
use fairlock_core::{ClientId, Error, LockKind, LockName, OwnerId};
use fairlock_rules::{WakeUp, WakeUpKind};

use super::clients::Count;
use super::store::{DAYS, Place, make_old};
use crate::FileBackend;
use crate::machine;
use crate::wake_ups::{self, sweep_if_due};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A client makes its socket, and another user puts something else there before the client changes the socket's mode.
#[test]
fn only_a_socket_of_ours_is_shared() {
    let place = Place::new();
    place.open();
    let [private, link, pipe, other, second] =
        ["id_rsa", "link", "pipe", "other", "second"].map(|name| place.0.join(name));
    fs::write(&private, "").unwrap();
    set_mode(&private, 0o600);
    symlink(&private, &link).unwrap();
    fs::hard_link(&private, &pipe).unwrap();
    let _agent = UnixDatagram::bind(&other).unwrap();
    set_mode(&other, 0o600);
    fs::hard_link(&other, &second).unwrap();
    for name in [&link, &pipe, &second] {
        assert!(machine::share(name).is_err(), "{}", name.display());
    }
    assert_eq!([mode(&private), mode(&other)], [0o600; 2]);
}

/// A link at the end of the path, also with a slash behind it: another user can have put it there, as in /tmp.
#[test]
fn a_directory_that_is_a_link_is_refused() {
    let (place, home) = (Place::new(), Place::new());
    fs::create_dir(&home.0).unwrap();
    set_mode(&home.0, 0o700);
    symlink(&home.0, &place.0).unwrap();
    for path in [place.0.clone(), place.0.join("")] {
        let error = FileBackend::open(path).unwrap_err();
        assert!(
            matches!(error, Error::InvalidConfig { .. })
                && error.to_string().contains("it is a link or a file"),
            "{error}"
        );
    }
    fs::remove_file(&place.0).unwrap();
    assert_eq!(mode(&home.0), 0o700);
    assert!(fs::read_dir(&home.0).unwrap().next().is_none());
}

/// Of what leads there too, by its name or by a link.
#[test]
fn a_directory_in_which_others_rename_is_refused() {
    let (place, link) = (Place::new(), Place::new());
    let dir = place.0.join("a").join("b");
    FileBackend::open(&dir).unwrap();
    symlink(&place.0, &link.0).unwrap();
    for (at, refused, path) in [
        (dir.clone(), 0o770, dir.clone()),
        (dir.clone(), 0o777, dir.clone()),
        (place.0.clone(), 0o775, dir.clone()),
        (place.0.clone(), 0o777, place.0.join("new")),
        (place.0.clone(), 0o777, link.0.join("a").join("b")),
    ] {
        let before = mode(&at);
        set_mode(&at, refused);
        let error = FileBackend::open(&path).unwrap_err();
        assert!(matches!(error, Error::InvalidConfig { .. }), "{error}");
        let says = format!("(mode {refused:o}), but not after `chmod +t {}`", at.display());
        assert!(error.to_string().ends_with(&says), "{error}");
        set_mode(&at, refused | 0o1000);
        FileBackend::open(&path).unwrap();
        set_mode(&at, before);
    }
    fs::remove_file(&link.0).unwrap();
}

/// Many programs lock empty files. Another user can give such a file of this user a second name here.
#[test]
fn an_empty_file_of_another_program_is_no_lock() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let (backend, _) = (place.open(), elsewhere.open());
    let (theirs, linked) = (place.0.join("theirs.lock"), elsewhere.0.join("linked"));
    for (path, mode) in [(&theirs, 0o644), (&linked, 0o1660)] {
        File::create(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        set_mode(path, mode);
    }
    fs::hard_link(&linked, place.0.join("linked.lock")).unwrap();
    for name in ["theirs", "linked"] {
        let lock = LockId::new(LockName::new(name).unwrap(), LockKind::Fair);
        let error = backend.inspect(&lock, 0..0).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Corrupt, "{error}");
    }
    assert_eq!(backend.locks_and_unread(None).unwrap().1.len(), 0);
    sweep_if_due(&backend.files, Duration::ZERO);
    assert_eq!([theirs, linked].map(|path| fs::metadata(path).unwrap().len()), [0; 2]);
    assert_eq!(place.files("lock").len(), 2);
}

/// Else an owner's name, or a link, leads to any socket.
#[test]
fn a_forged_owner_gets_no_message() {
    let (place, elsewhere) = (Place::new(), Place::new());
    let (backend, _) = (place.open(), elsewhere.open());
    let [path, linked] = ["forged", "linked"].map(|name| elsewhere.0.join(format!("{name}.wake")));
    let sockets = [&path, &linked].map(|path| UnixDatagram::bind(path).unwrap());
    let client = ClientId::random().to_string();
    symlink(&linked, place.0.join(format!("{client}.wake"))).unwrap();
    for owner in [path.with_extension("").to_str().unwrap(), &client] {
        let (lock, owner) = (LockName::new("x").unwrap(), OwnerId::new(&format!("{owner}:1")));
        wake_ups::send(&backend.files.dir, &[WakeUp { lock, owner, kind: WakeUpKind::Recheck }]);
    }
    for socket in sockets {
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0; 9]).is_err());
    }
}

/// Else the file says of a client that never was that it is gone.
#[test]
fn a_client_that_cannot_listen_leaves_no_presence() {
    let (place, client) = (Place::new(), ClientId::random());
    let backend = place.open();
    File::create(place.0.join(format!("{client}.wake"))).unwrap();
    assert!(backend.subscribe(client, Arc::new(Count::default())).is_err());
    assert!(place.files("here").is_empty());
}

/// systemd-tmpfiles leaves a file with the sticky bit, however old the file is.
#[cfg(target_os = "linux")]
#[test]
fn files_have_the_mark_that_keeps_a_cleaner_away() {
    let place = Place::new();
    let client = place.client();
    client.fair_lock("x").unwrap().lock().unwrap().unlock().unwrap();
    for extension in ["lock", "here", "wake"] {
        assert_eq!(mode(&place.files(extension)[0]), 0o1660, "{extension}");
    }
}

/// In a directory that has other files, too: `fairlock run --dir` takes any.
#[test]
fn old_files_that_only_look_like_ours_stay() {
    let place = Place::new();
    let backend = place.open();
    let [begun, like_begun, like_here, of_another] = [(); 4].map(|()| ClientId::random());
    let theirs = [
        "httpd.conf.new".to_owned(),
        "swept".to_owned(),
        "beef.here".to_owned(),
        format!("{like_begun}.new"),
        format!("{like_here}.here"),
        format!("{of_another}.new"),
    ];
    theirs.iter().for_each(|name| fs::write(place.0.join(name), "precious").unwrap());
    let of_another = place.0.join(&theirs[5]);
    fs::write(&of_another, "").unwrap();
    // Without the rights of root nobody can give a file away.
    let is_given = chown(&of_another, Some(1), None).is_ok();
    File::create(place.0.join(format!("{begun}.new"))).unwrap();
    fs::read_dir(&place.0).unwrap().for_each(|file| make_old(&file.unwrap().path(), DAYS));
    sweep_if_due(&backend.files, Duration::ZERO);
    let left = |name: &&String| place.0.join(name).exists();
    assert_eq!(theirs.iter().filter(left).count(), if is_given { 6 } else { 5 });
    assert!(!place.0.join(format!("{begun}.new")).exists());
}

/// The commands of cron may be shorter than a sweep.
#[test]
fn a_sweep_that_was_cut_off_goes_on_at_the_next_start() {
    let place = Place::new();
    let files = Arc::clone(&place.open().files);
    let is_swept = || {
        let begun = place.0.join(format!("{}.new", ClientId::random()));
        File::create(&begun).unwrap();
        make_old(&begun, DAYS);
        sweep_if_due(&files, DAYS);
        !begun.exists()
    };
    let cut_off = File::create(place.stamp()).unwrap(); // as its process leaves it
    cut_off.lock().unwrap();
    assert!(!is_swept(), "another client sweeps");
    drop(cut_off);
    assert!(is_swept());
    assert!(!is_swept(), "a sweep has ended");
    make_old(&place.stamp(), DAYS + Duration::from_secs(9));
    assert!(is_swept());
}
