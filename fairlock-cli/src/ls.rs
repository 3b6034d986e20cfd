//! `fairlock ls`.
use crate::args::{Ls, Server};
use crate::exit::{Exit, Failure};

pub(crate) fn ls(_server: &Server, _options: &Ls) -> Result<Exit, Failure> {
    Err(Failure::ours("soon"))
}
