//! How a wait is linked to the span of its holder, with OpenTelemetry.

use std::collections::HashMap;

use fairlock::ClientBuilder;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TraceContextExt;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// For every client of the program.
pub fn traced(builder: ClientBuilder) -> ClientBuilder {
    builder
        .traceparent(|| {
            let mut headers = HashMap::new();
            TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
            headers.remove("traceparent")
        })
        .link_to_holder(|wait, traceparent| {
            let headers = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
            let holder = TraceContextPropagator::new().extract(&headers);
            wait.add_link(holder.span().span_context().clone());
        })
}
