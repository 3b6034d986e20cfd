//! Mistakes that a person could make in the Lua, of `mistakes.toml`: the comparisons must find all of them.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mistakes {
    pub(crate) rule: Vec<Mistake>,
    pub(crate) rule_of_units: Vec<Mistake>,
    pub(crate) case: Vec<Mistake>,
    pub(crate) case_of_units: Vec<Mistake>,
}

/// A change to a script file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mistake {
    /// What it does.
    pub(crate) mistake: String,
    pub(crate) file: String,
    pub(crate) from: String,
    pub(crate) to: String,
}

impl Mistakes {
    pub(crate) fn read() -> Mistakes {
        toml::from_str(include_str!("mistakes.toml")).unwrap()
    }
}
