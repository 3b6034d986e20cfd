//! fairlock's own scripts, joined as in `fairlock-redis/src/scripts.rs`: by the first line of the file.

use crate::Outcome;

/// The text of `fairlock-redis/scripts/<name>.lua`, after the parts that it uses.
pub fn source(name: &str) -> Outcome<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fairlock-redis/scripts");
    let own = std::fs::read_to_string(format!("{folder}/{name}.lua"))?;
    let uses = own.lines().next().and_then(|line| line.strip_prefix("-- uses:")).unwrap_or_default();
    let mut joined = String::new();
    for part in uses.split_whitespace() {
        joined += &std::fs::read_to_string(format!("{folder}/{part}.lua"))?;
    }
    Ok(joined + &own)
}
