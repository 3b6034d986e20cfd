//! Layouts of stores and messages, as docs/versions.md has them: what this version writes stays as it was recorded, and what a later
//! version has written is refused and left alone.

mod layouts;
mod newer;
