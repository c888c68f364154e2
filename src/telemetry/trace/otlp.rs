//! Spans, sent to a collector with OTLP over HTTP.

use std::sync::OnceLock;

use http::{HeaderMap, Method};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::span_processor_with_async_runtime::BatchSpanProcessor;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span as SdkSpan};
use opentelemetry_sdk::{Resource, runtime};

use super::Step;
use crate::model::record::SpanName;

/// Where spans are made, once there is a collector.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// What says where the collector is (OpenTelemetry, "OTLP Exporter Configuration").
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Sends what is left when it is dropped.
#[derive(Debug)]
pub struct Guard(SdkTracerProvider);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            tracing::debug!(%error, "the last spans could not be sent");
        }
    }
}

/// Begins to send spans, if the environment says where. Inside a runtime.
///
/// # Errors
/// What the environment says makes no exporter.
pub fn install() -> anyhow::Result<Option<Guard>> {
    let is_wanted = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !ENDPOINTS.iter().any(|name| is_wanted(name)) {
        return Ok(None);
    }
    let exporter = SpanExporter::builder().with_http().build()?;
    let mut resource = Resource::builder();
    if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name("onceward");
    }
    let provider = SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter, runtime::Tokio).build())
        .with_resource(resource.build())
        .build();
    _ = TRACER.set(provider.tracer("onceward"));
    Ok(Some(Guard(provider)))
}

/// A span; it ends when it is dropped.
#[derive(Debug)]
pub struct Span(Option<SdkSpan>);

/// What spans belong to.
#[derive(Debug, Clone)]
pub struct Trace(Option<SpanContext>);

impl Span {
    /// The span of a request, in the trace that its caller began, if it says a
    /// good one (W3C Trace Context, section 4.3: a bad `traceparent` is ignored).
    pub fn of_request(method: &Method, headers: &HeaderMap) -> Self {
        let Some(tracer) = TRACER.get() else { return Self(None) };
        let parent = match headers.get_all("traceparent").iter().count() {
            1 => TraceContextPropagator::new().extract_with_context(&Context::new(), &HeaderExtractor(headers)),
            _ => Context::new(),
        };
        let builder = SpanBuilder::from_name("request").with_kind(SpanKind::Server);
        let builder = builder.with_attributes([KeyValue::new("http.request.method", method.as_str().to_owned())]);
        Self(Some(tracer.build_with_context(builder, &parent)))
    }

    /// What belongs to it.
    pub fn trace(&self) -> Trace {
        Trace(self.0.as_ref().map(|span| span.span_context().clone()))
    }

    /// Its trace's id, for the log.
    pub fn trace_id(&self) -> Option<String> {
        self.0.as_ref().map(|span| span.span_context().trace_id().to_string())
    }

    /// Names it as the parent of what a request causes.
    pub fn inject(&self, headers: &mut HeaderMap) {
        if let Some(span) = &self.0 {
            let context = Context::new().with_remote_span_context(span.span_context().clone());
            headers.remove("traceparent");
            headers.remove("tracestate");
            TraceContextPropagator::new().inject_context(&context, &mut HeaderInjector(headers));
        }
    }

    /// Notes how the request ended.
    pub fn end_request(&mut self, route: Option<&str>, status: Option<u16>, outcome: &'static str) {
        let Some(span) = &mut self.0 else { return };
        if let Some(route) = route {
            span.set_attribute(KeyValue::new("onceward.route", route.to_owned()));
        }
        if let Some(status) = status {
            span.set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
            if status >= 500 {
                span.set_status(Status::error(""));
            }
        }
        span.set_attribute(KeyValue::new("onceward.outcome", outcome));
    }

    /// Ends it.
    pub fn end(self) {}

    /// Notes that its step failed.
    pub fn fail(&mut self) {
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(""));
        }
    }
}

impl Trace {
    /// None: a step of it is a trace of its own.
    pub fn none() -> Self {
        Self(None)
    }

    /// Whether anybody follows it.
    pub fn is_followed(&self) -> bool {
        self.0.as_ref().is_some_and(SpanContext::is_sampled)
    }

    /// Its name, to be kept with an attempt.
    pub fn name(&self) -> Option<SpanName> {
        let context = self.0.as_ref().filter(|context| context.is_sampled())?;
        Some(SpanName { trace: context.trace_id().to_bytes(), span: context.span_id().to_bytes() })
    }

    /// A step of it.
    pub fn step(&self, step: Step) -> Span {
        self.step_about(step, None)
    }

    /// A step of it that has to do with another one; by itself where there is no
    /// trace to be a step of.
    pub fn step_about(&self, step: Step, other: Option<SpanName>) -> Span {
        let Some(tracer) = TRACER.get() else { return Span(None) };
        let parent = match &self.0 {
            Some(context) => Context::new().with_remote_span_context(context.clone()),
            None => Context::new(),
        };
        let kind = match step {
            Step::Send | Step::Lookup => SpanKind::Client,
            Step::Claim | Step::Wait | Step::Settle | Step::Replay => SpanKind::Internal,
        };
        let mut builder = SpanBuilder::from_name(step.as_str()).with_kind(kind);
        if let Some(SpanName { trace, span }) = other {
            let (trace, span) = (TraceId::from_bytes(trace), SpanId::from_bytes(span));
            let context = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::NONE);
            builder = builder.with_links(vec![Link::with_context(context)]);
        }
        Span(Some(tracer.build_with_context(builder, &parent)))
    }
}
