//! A subscriber that keeps the spans of this library.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Span>>>);

#[derive(Default)]
pub(crate) struct Span {
    name: &'static str,
    fields: BTreeMap<&'static str, String>,
    is_closed: bool,
}

impl Visit for Span {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "fairlock::span"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = Span { name: span.metadata().name(), ..Span::default() };
        span.record(&mut seen);
        let mut all = self.0.lock().unwrap();
        all.push(seen);
        Id::from_u64(all.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut self.0.lock().unwrap()[place_of(span)]);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {
        panic!("no span is entered: its thread may run anything meanwhile");
    }

    fn exit(&self, _: &Id) {}

    fn try_close(&self, span: Id) -> bool {
        let mut all = self.0.lock().unwrap();
        assert!(!std::mem::replace(&mut all[place_of(&span)].is_closed, true), "it is closed once");
        true
    }
}

fn place_of(span: &Id) -> usize {
    usize::try_from(span.into_u64()).unwrap() - 1
}

impl Recorder {
    /// The spans since `from`, in the order in which they began. `*`: it is not closed.
    pub(crate) fn since(&self, from: usize) -> Vec<String> {
        let line = |span: &Span| {
            let fields = span.fields.iter().filter(|(name, _)| !name.starts_with("holder"));
            let fields: String = fields.map(|(name, value)| format!(" {name}={value}")).collect();
            format!("{}{fields}{}", span.name, if span.is_closed { "" } else { "*" })
        };
        self.0.lock().unwrap()[from..].iter().map(line).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// A field of any span.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        self.0.lock().unwrap().iter().find_map(|span| span.fields.get(name).cloned())
    }
}
