//! The answer to a command: from a step, or from a row that a fast part has returned.

use std::time::Duration;

use fairlock_core::FencingToken;
use fairlock_core::backend::{Acquired, ForceReleased, HoldCountSet, HoldKept, Released, Renewal, Withdrawn};

use crate::attempt::What;
use crate::net::{Failure, Row};
use crate::row::moment;

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
    HoldCountSet(HoldCountSet)
    Released(Released)
    HoldKept(HoldKept)
    Renewed(Vec<Renewal>)
    Withdrawn(Withdrawn)
    ForceReleased(ForceReleased)
}

impl Answer {
    /// Whether the answer is a promise: its caller may believe in a hold. A deposed primary must make no promise, even if the step
    /// changes nothing.
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

    /// The answer of a fast part that has returned this row.
    pub(crate) fn of_row(what: What, row: &Row) -> Result<Answer, Failure> {
        Ok(match what {
            What::Renew => Answer::Renewed(vec![Renewal::Renewed]),
            What::Release => Answer::Released(Released::Released),
            What::Acquire => {
                let token = FencingToken::new(row.number(1)?.cast_unsigned());
                Answer::Acquired(Acquired::Granted { token, lease: moment(row.number(2)?) })
            }
        })
    }

    /// The answer with its times counted from this much earlier.
    pub(crate) fn shorten(&mut self, late: Duration) {
        let shorten = |time: &mut Duration| *time = time.saturating_sub(late);
        match self {
            Answer::Acquired(
                Acquired::Granted { lease: time, .. }
                | Acquired::Queued { recheck_in: time, .. }
                | Acquired::Busy { recheck_in: time },
            ) => shorten(time),
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
