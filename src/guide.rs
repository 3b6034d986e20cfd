// The chapters of `docs/`, unchanged; their examples are tests. Markdown takes the first of two definitions of a link, so in
// rustdoc the chapters' links lead to modules, and elsewhere to files.
#![doc = include_str!("../docs/rustdoc-links.md")]
#![doc = include_str!("../docs/pictures/for-rustdoc.md")]
#![doc = include_str!("../docs/README.md")]

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/getting-started.md")]
pub mod getting_started {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[cfg_attr(not(doctest), doc = include_str!("../docs/async.md"))] // a doctest of tests/, which has tokio
pub mod r#async {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/pictures/for-rustdoc.md")]
#[doc = include_str!("../docs/which-one.md")]
pub mod which_one {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/pictures/for-rustdoc.md")]
#[doc = include_str!("../docs/times.md")]
pub mod times {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/pictures/for-rustdoc.md")]
#[doc = include_str!("../docs/hand-over.md")]
pub mod hand_over {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/fencing.md")]
pub mod fencing {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/leader.md")]
pub mod leader {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/many-commands.md")]
pub mod many_commands {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/from-redisson.md")]
pub mod from_redisson {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/from-elsewhere.md")]
pub mod from_elsewhere {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/from-advisory-locks.md")]
pub mod from_advisory_locks {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/pictures/for-rustdoc.md")]
#[doc = include_str!("../docs/promises.md")]
pub mod promises {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/pictures/for-rustdoc.md")]
#[cfg_attr(not(doctest), doc = include_str!("../docs/postgres.md"))] // its blocks are parts of examples/transfer/ and tests/postgres/store/
pub mod postgres {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/file.md")]
pub mod file {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/pictures/for-rustdoc.md")]
#[doc = include_str!("../docs/durable.md")]
pub mod durable {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/operating.md")]
pub mod operating {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[cfg_attr(not(doctest), doc = include_str!("../docs/reference.md"))] // its blocks are parts of the files that it names
pub mod reference {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[cfg_attr(not(doctest), doc = include_str!("../docs/testing.md"))] // as async.md
pub mod testing {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[cfg_attr(not(doctest), doc = include_str!("../docs/writing-a-backend.md"))] // its blocks are parts of fairlock-file/
pub mod writing_a_backend {}

#[doc = include_str!("../docs/rustdoc-links.md")]
#[doc = include_str!("../docs/versions.md")]
pub mod versions {}
