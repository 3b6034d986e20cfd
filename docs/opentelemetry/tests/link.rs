//! A slow wait names the span in which the holder took the lock.

use std::time::Duration;

use fairlock::{Client, MemoryBackend};
use fairlock_opentelemetry::traced;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use tracing::info_span;
use tracing::subscriber::with_default;
use tracing_subscriber::layer::SubscriberExt;

#[test]
fn a_slow_wait_names_the_holders_span() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    with_default(tracing_subscriber::registry().with(layer), || {
        let store = MemoryBackend::new();
        let client =
            || traced(Client::builder(store.clone())).slow_wait(Duration::from_millis(20)).build().unwrap();
        let [holds, waits] = [client(), client()].map(|client| client.fair_lock("orders").unwrap());
        let guard = info_span!("order 1").in_scope(|| holds.lock().unwrap());
        let second = info_span!("order 2");
        let mut request = second.in_scope(|| waits.request().unwrap());
        assert!(request.wait_for(Duration::from_secs(1)).unwrap().granted().is_none());
        guard.unlock().unwrap();
        second.in_scope(|| request.wait().unwrap().unlock().unwrap());
    });
    let spans = exporter.get_finished_spans().unwrap();
    let named = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (first, second) = (named("order 1")[0], named("order 2")[0]);
    let wait =
        named("fairlock.wait").into_iter().find(|wait| wait.parent_span_id == second.span_context.span_id());
    let holder = wait.unwrap().attributes.iter().find(|field| field.key.as_str() == "holder.traceparent");
    let of_first = first.span_context.span_id().to_string();
    assert!(holder.is_some_and(|holder| holder.value.as_str().contains(&of_first)), "{spans:#?}");
    let parents: Vec<_> = named("fairlock.hold").iter().map(|hold| hold.parent_span_id).collect();
    assert_eq!(parents, [first, second].map(|span| span.span_context.span_id()));
}
