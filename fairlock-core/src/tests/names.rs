//! What scenes and stories share: the names of those who ask for a lock, times, and how their words are made.

use std::time::Duration;

macro_rules! names {
    ($($constant:ident $name:ident)+) => {
        $(
            #[allow(dead_code, reason = "not every test names everybody")]
            pub(crate) const $constant: &str = stringify!($name);
        )+

        /// Who can be asked for by name. `a2` has the owner of `a`.
        #[allow(dead_code, reason = "not every test names everybody")]
        pub(crate) trait Names {
            type One;

            /// The one of this name, who is new when first named.
            fn by(&self, name: &str) -> Self::One;

            $(
                fn $name(&self) -> Self::One {
                    self.by($constant)
                }
            )+
        }
    };
}

names! { A a A2 a2 B b C c D d E e F f L l N n O o T t W w X x Y y Z z }

pub(crate) const S: Duration = Duration::from_secs(1);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[allow(dead_code, reason = "not every test is so exact")]
pub(crate) const fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Words that do or check something; `then` goes on with the sentence.
macro_rules! words {
    ($($(#[$doc:meta])* $word:ident($self:ident $(, $with:ident: $of:ty)*) $does:block)+) => {$(
        $(#[$doc])*
        #[track_caller]
        pub(crate) fn $word(&$self $(, $with: $of)*) -> Self {
            $does;
            $self.then()
        }
    )+};
}
pub(crate) use words;
