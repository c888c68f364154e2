//! W3C Trace Context and spans.

use crate::support::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn traced(trace: &str, flags: &str) -> Request {
    pay("k").header("traceparent", &format!("00-{trace}-00f067aa0ba902b7-{flags}")).header("tracestate", "vendor=1")
}

/// Without a collector, the context of a trace goes on as it came, and none is
/// begun.
#[tokio::test]
async fn the_context_of_a_trace_passes_through_untouched() {
    let destination = Destination::start().await;
    let proxy = Proxy::before(&destination).await;
    let request = traced(TRACE, "01");
    proxy.send(&request).await.is_executed(201);
    let received = destination.last();
    for name in ["traceparent", "tracestate"] {
        let sent = request.headers().iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str());
        assert_eq!(received.header(name), sent);
    }
    proxy.send(&pay("other")).await.is_executed(201);
    assert_eq!(destination.last().header("traceparent"), None, "nothing else is added to a request");
}

#[cfg(feature = "otlp")]
mod with_a_collector {
    use super::*;

    /// A span as it was exported (opentelemetry-proto, `trace.proto`).
    #[derive(Debug, Clone)]
    struct Span {
        trace: String,
        id: String,
        parent: String,
        name: String,
        /// The traces it links to.
        links: Vec<String>,
    }

    /// The fields of a protobuf message: their numbers and, where they have any,
    /// their bytes.
    fn fields(mut message: &[u8]) -> Vec<(u64, &[u8])> {
        fn varint(message: &mut &[u8]) -> u64 {
            let mut number = 0;
            for shift in (0..).step_by(7) {
                let (byte, rest) = message.split_first().expect("a number ends");
                *message = rest;
                number |= u64::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            number
        }
        let mut found = Vec::new();
        while !message.is_empty() {
            let tag = varint(&mut message);
            let length = match tag & 7 {
                0 => {
                    varint(&mut message);
                    0
                }
                1 => 8,
                2 => usize::try_from(varint(&mut message)).unwrap(),
                5 => 4,
                other => panic!("wire type {other}"),
            };
            let (bytes, rest) = message.split_at(length);
            found.push((tag >> 3, bytes));
            message = rest;
        }
        found
    }

    fn within(message: &[u8], number: u64) -> impl Iterator<Item = &[u8]> {
        fields(message).into_iter().filter(move |(of, _)| *of == number).map(|(_, bytes)| bytes)
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// All spans that a collector was sent.
    fn spans(collector: &Destination) -> Vec<Span> {
        let mut found = Vec::new();
        for number in 1..=collector.executions() {
            let export = collector.received(number);
            assert_eq!(export.target, "/v1/traces");
            for resource in within(&export.body, 1) {
                for scope in within(resource, 2) {
                    for span in within(scope, 2) {
                        let one = |number| within(span, number).next().unwrap_or_default();
                        found.push(Span {
                            trace: hex(one(1)),
                            id: hex(one(2)),
                            parent: hex(one(4)),
                            name: String::from_utf8(one(5).to_vec()).unwrap(),
                            links: within(span, 13).map(|link| hex(within(link, 1).next().unwrap())).collect(),
                        });
                    }
                }
            }
        }
        found
    }

    async fn proxy_with(collector: &Destination, destination: &Destination) -> Proxy {
        let mut proxy = Proxy::prepared(Config::new(), destination.address());
        proxy.variable("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{}", collector.address()));
        proxy.variable("OTEL_BSP_SCHEDULE_DELAY", "100");
        proxy.start_again().await;
        proxy
    }

    async fn collector() -> Destination {
        Destination::that(|_| reply(200).into()).await
    }

    /// The one span of that name in a trace, once it is there.
    async fn span(collector: &Destination, trace: &str, name: &str) -> Span {
        let mut found = None;
        eventually(&format!("there is a span {name} in {trace}"), async || {
            found = spans(collector).into_iter().find(|span| span.trace == trace && span.name == name);
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    #[tokio::test]
    async fn a_request_is_followed_through_its_steps_and_a_replay_to_its_attempt() {
        const RETRY: &str = "0af7651916cd43dd8448eb211c80319c";
        let (collector, destination) = (collector().await, Destination::start().await);
        let proxy = proxy_with(&collector, &destination).await;
        proxy.send(&traced(TRACE, "01")).await.is_executed(201);
        let root = span(&collector, TRACE, "request").await;
        assert_eq!(root.parent, "00f067aa0ba902b7", "the caller's span");
        for step in ["claim", "send", "settle"] {
            assert_eq!(span(&collector, TRACE, step).await.parent, root.id, "{step}");
        }
        let send = span(&collector, TRACE, "send").await;
        let received = destination.last();
        assert_eq!(received.header("traceparent"), Some(format!("00-{TRACE}-{}-01", send.id).as_str()));
        assert_eq!(received.header("tracestate"), Some("vendor=1"));

        proxy.send(&traced(RETRY, "01")).await.is_replayed(201);
        assert_eq!(span(&collector, RETRY, "replay").await.links, [TRACE]);
        assert_eq!(destination.executions(), 1);
        assert!(proxy.log().contains(TRACE), "the log names the trace");
        let told = spans(&collector).iter().map(|span| format!("{span:?}")).collect::<String>();
        assert!(!told.contains("alice"), "{told}");
    }

    #[tokio::test]
    async fn who_waits_has_a_span_that_says_so() {
        const WAITS: &str = "0af7651916cd43dd8448eb211c80319c";
        let gate = Gate::shut();
        let (collector, destination) = (collector().await, Destination::that_first(reply(201).after(&gate)).await);
        let proxy = proxy_with(&collector, &destination).await;
        let first = proxy.begin(&traced(TRACE, "01"));
        destination.has_received(1).await;
        let waits = proxy.begin(&traced(WAITS, "01"));
        proxy.has_waiters(1).await;
        gate.open();
        first.answer().await.is_executed(201);
        waits.answer().await.is_replayed(201);
        span(&collector, WAITS, "wait").await;
    }

    #[tokio::test]
    async fn what_nobody_samples_is_passed_on_and_what_is_malformed_begins_anew() {
        let (collector, destination) = (collector().await, Destination::start().await);
        let proxy = proxy_with(&collector, &destination).await;
        proxy.send(&traced(TRACE, "00")).await.is_executed(201);
        let unsampled = destination.last().header("traceparent").unwrap().to_owned();
        assert!(unsampled.starts_with(&format!("00-{TRACE}-")) && unsampled.ends_with("-00"), "{unsampled}");
        for (key, malformed) in [("a", "00-xyz"), ("b", "00-00000000000000000000000000000000-00f067aa0ba902b7-01")] {
            proxy.send(&pay(key).header("traceparent", malformed)).await.is_executed(201);
            let begun = destination.last().header("traceparent").unwrap().to_owned();
            let trace = begun.split('-').nth(1).unwrap().to_owned();
            assert_ne!(trace, "00000000000000000000000000000000");
            assert_eq!(span(&collector, &trace, "request").await.parent, "", "{malformed}");
        }
        assert!(spans(&collector).iter().all(|span| span.trace != TRACE), "nobody asked for that one");
    }
}
