//! How a request brings the span in which a program asks, with OpenTelemetry.

use std::collections::HashMap;

use fairlock::settings::ClientBuilder;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// For every client of the program.
pub fn traced(builder: ClientBuilder) -> ClientBuilder {
    builder.traceparent(|| {
        let mut headers = HashMap::new();
        TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
        headers.remove("traceparent")
    })
}
