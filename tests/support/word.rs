//! The names of variants in arguments, tables and files: `KillUncopied` is `kill-uncopied`.

use std::fmt::Debug;

/// The name of this variant.
pub fn word(variant: &impl Debug) -> String {
    let mut word = String::new();
    for letter in format!("{variant:?}").chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

/// The variant of this name, of these.
pub fn variant<T: Copy + Debug>(all: &[T], name: &str) -> Option<T> {
    all.iter().copied().find(|variant| word(variant) == name)
}
