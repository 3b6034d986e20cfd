//! Compiles a small program against the `fairlock` that this test is linked with, by rustc alone: cargo would build all of
//! it again.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// Compiles the program in `dir`, and returns its path and what rustc said.
pub(crate) fn compile(dir: &Path, source: &str) -> (PathBuf, Output) {
    let probe = "pub use fairlock::{MemoryBackend, RedisBackend}; fn main() {}";
    // Builds with other features or by other compilers lie there too: the latest one that works is ours.
    let works = |fairlock: &PathBuf| run(dir, fairlock, probe).1.status.success();
    let fairlock = builds().into_iter().find(works).expect("it was built for this test");
    run(dir, &fairlock, source)
}

fn run(dir: &Path, fairlock: &Path, source: &str) -> (PathBuf, Output) {
    let (file, program) = (dir.join("main.rs"), dir.join("main"));
    fs::write(&file, source).unwrap();
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition", "2024", "--crate-name", "main", "-o"]).args([&program, &file]);
    rustc.arg("--extern").arg(format!("fairlock={}", fairlock.display()));
    rustc.arg("-L").arg(format!("dependency={}", deps().display()));
    (program, rustc.output().unwrap())
}

/// All builds of `fairlock`, the latest first.
fn builds() -> Vec<PathBuf> {
    let files = fs::read_dir(deps()).unwrap().map(|file| file.unwrap());
    let is_ours = |name: &str| name.starts_with("libfairlock-") && name.ends_with(".rlib");
    let ours = files.filter(|file| file.file_name().to_str().is_some_and(is_ours));
    let mut ours: Vec<PathBuf> = ours.map(|file| file.path()).collect();
    ours.sort_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    ours.reverse();
    ours
}

/// Where cargo puts what it compiles: this test as well.
fn deps() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_owned()
}
