//! The answer to a command.

use std::time::Duration;

use fairlock_core::backend::{Acquired, ForceReleased, HoldKept, Released, Renewal, Withdrawn};

use crate::net::Failure;

macro_rules! answers {
    ($($name:ident($answer:ty))*) => {
        pub(crate) enum Answer {
            $($name($answer),)*
        }

        $(
            impl From<$answer> for Answer {
                fn from(answer: $answer) -> Answer {
                    Answer::$name(answer)
                }
            }

            impl TryFrom<Answer> for $answer {
                type Error = Failure;

                fn try_from(answer: Answer) -> Result<$answer, Failure> {
                    match answer {
                        Answer::$name(answer) => Ok(answer),
                        _ => Err(Failure::senseless()),
                    }
                }
            }
        )*
    };
}

answers! {
    Acquired(Acquired)
    Released(Released)
    HoldKept(HoldKept)
    Renewed(Vec<Renewal>)
    Withdrawn(Withdrawn)
    ForceReleased(ForceReleased)
}

impl Answer {
    /// Whether the answer is a promise: its caller may believe in a hold. A deposed primary must make no promise, so a promise is written
    /// even if it changes nothing.
    pub(crate) fn is_promise(&self) -> bool {
        match self {
            Answer::Acquired(Acquired::Granted { .. })
            | Answer::Withdrawn(Withdrawn::WasGranted { .. })
            | Answer::HoldKept(HoldKept::Kept) => true,
            Answer::Renewed(renewals) => {
                renewals.iter().any(|renewal| matches!(renewal, Renewal::Renewed | Renewal::Granted { .. }))
            }
            _ => false,
        }
    }

    /// The answer with its times counted from this much earlier.
    pub(crate) fn shorten(&mut self, late: Duration) {
        let shorten = |time: &mut Duration| *time = time.saturating_sub(late);
        match self {
            Answer::Acquired(
                Acquired::Granted { lease: time, .. }
                | Acquired::Queued { recheck_in: time, .. }
                | Acquired::Busy { recheck_in: time },
            )
            | Answer::Withdrawn(Withdrawn::WasGranted { lease: time, .. }) => shorten(time),
            Answer::Renewed(renewals) => {
                for renewal in renewals {
                    if let Renewal::Granted { lease: time, .. } | Renewal::Waiting { recheck_in: time, .. } =
                        renewal
                    {
                        shorten(time);
                    }
                }
            }
            _ => {}
        }
    }
}
