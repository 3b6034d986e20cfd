//! Wall clocks that are wrong: `torture/judge/clock.c`, preloaded by a program, follows a file.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use crate::files::root;

/// The library that such a program preloads, compiled unless an earlier process has done so.
///
/// # Panics
/// This is not Linux, or has no C compiler.
pub fn clock_library() -> PathBuf {
    let (source, folder) = (root().join("torture/judge/clock.c"), root().join("target"));
    let library = folder.join("clock.so");
    let changed = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    if changed(&library) < changed(&source) {
        fs::create_dir_all(&folder).expect("the target dir can be made");
        // Other processes may do the same: the name leads to a whole file at any time.
        let own = folder.join(format!("clock.{}.so", process::id()));
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&own, &source]).status();
        assert!(compiled.is_ok_and(|status| status.success()), "{} needs Linux and cc", source.display());
        fs::rename(own, &library).expect("a file can be renamed");
    }
    library
}

/// Sets the clock of the programs that follow this file: so many milliseconds ahead, and fast by so many millionths.
///
/// # Panics
/// The file can't be written.
pub fn set_wall_clock(file: &Path, ahead: i32, fast: i32) {
    let both = [ahead.to_ne_bytes(), fast.to_ne_bytes()].concat();
    // In one write, and never empty: the programs have mapped the file.
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(file);
    file.and_then(|mut file| file.write_all(&both)).expect("the clock is set");
}
