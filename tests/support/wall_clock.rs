//! Wall clocks that are wrong: `torture/judge/clock.c`, preloaded by a program, follows a file.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

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
