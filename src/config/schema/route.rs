//! The part of the table about routes and what they promise.

use super::{DECADE, DESTINATION, HOUR, WEEK, second_up_to, up_to, zero_up_to};
use crate::config::kind::{Field, Form, Kind, Object, Stage};
use crate::plan::template::Place;

/// The policies that routes inherit.
pub(in crate::config) static DEFAULTS: Object = Object { name: "defaults", groups: &[POLICY] };

/// A route: what it matches, what it promises, what it was.
pub(super) static ROUTE: Object = Object {
    name: "route",
    groups: &[
        &[
            Field::new("name", Kind::Text(Form::Name), None, "Part of every record's identity; the path if left out."),
            Field::required(
                "path",
                Kind::Text(Form::Pattern),
                "As in `/orders`, `/orders/{id}/refund`, `/hooks/{*rest}`.",
            ),
            Field::new(
                "methods",
                Kind::List { of: &Kind::Text(Form::Method), may_be_empty: false },
                Some("[POST, PATCH]"),
                "The methods that are guarded; all others pass through.",
            ),
            Field::new("host", Kind::Text(Form::Host), None, "Only for requests to this host."),
            Field::new(
                "destination",
                Kind::Part(&DESTINATION),
                None,
                "A destination of its own; what it leaves out is inherited.",
            ),
        ],
        POLICY,
        &[
            Field::new(
                "formerly",
                Kind::List { of: &Kind::ObjectOr { field: "name", object: &FORMER }, may_be_empty: true },
                None,
                "Earlier identities whose records still count.",
            ),
            Field::later("verify", "The signature of a webhook."),
        ],
    ],
};

/// What a route promises; `defaults` holds the same.
const POLICY: &[Field] = &[
    Field::new(
        "key",
        Kind::Text(Form::Template(Place::Identity)),
        Some("\"{header:Idempotency-Key}\""),
        "The caller's identity for one intended action.",
    ),
    Field::new(
        "key_required",
        Kind::Bool,
        Some("true"),
        "Whether a request without a key is an error, or passes unguarded.",
    ),
    Field::new(
        "scope",
        Kind::Text(Form::Template(Place::Identity)),
        Some("\"{header:Authorization}\""),
        "Who may share a key; `\"\"` shares deliberately.",
    ),
    Field::new(
        "fingerprint",
        Kind::Object(&FINGERPRINT),
        Some("{}"),
        "What tells a retry from a different request under the same key.",
    ),
    Field::new(
        "retention",
        second_up_to(DECADE),
        Some("24h"),
        "How long a stored response is replayed, counted from completion.",
    ),
    Field::new(
        "guard",
        zero_up_to(DECADE),
        Some("0s"),
        "How long after retention a retry is still refused, not executed.",
    ),
    Field::new("wait", zero_up_to(HOUR), Some("10s"), "How long a duplicate waits for the first."),
    Field::new(
        "lease",
        second_up_to(HOUR),
        Some("30s"),
        "How long a claim stays believed without a heartbeat from its owner.",
    ),
    Field::new(
        "on_unknown",
        Kind::Word(&[("hold", Stage::Here), ("forward", Stage::Here), ("reconcile", Stage::Here)]),
        Some("hold"),
        "Hold for an operator, forward to an idempotent destination, or reconcile: ask it what happened.",
    ),
    Field::new(
        "reconcile",
        Kind::Object(&RECONCILE),
        None,
        "How the destination is asked whether an action happened, for `on_unknown: reconcile`.",
    ),
    Field::new(
        "on_store_error",
        Kind::Word(&[("reject", Stage::Here), ("bypass", Stage::Here)]),
        Some("reject"),
        "Where the store cannot be reached: reject with 503, or bypass the guard.",
    ),
    Field::new(
        "statuses",
        Kind::Object(&STATUSES),
        Some("{}"),
        "What a status means, if not stored; an entry set in one list leaves the other's default.",
    ),
    Field::new("mismatch_status", Kind::Number(&[422, 409, 400]), Some("422"), "The status of `key-reused`."),
    Field::new("store_set_cookie", Kind::Bool, Some("false"), "Whether Set-Cookie is stored and replayed."),
    Field::new(
        "unknown_retention",
        second_up_to(DECADE),
        None,
        "When an unknown record may go by time; for ever if left out.",
    ),
    Field::new(
        "forward_key",
        Kind::ObjectOr { field: "header", object: &FORWARD_KEY },
        None,
        "A header set on the forwarded request.",
    ),
];

/// How a destination is asked.
static RECONCILE: Object = Object {
    name: "reconcile",
    groups: &[&[
        Field::required("request", Kind::Object(&RECONCILE_REQUEST), "What is asked."),
        Field::required("found", Kind::Object(&CONDITION), "When the answer shows the action."),
        Field::new(
            "match",
            Kind::Pointers,
            Some("{}"),
            "What has to be equal then: a pointer into the request, and where the answer has it.",
        ),
        Field::required("response", Kind::Object(&RECONCILED), "What is stored and replayed then."),
        Field::new(
            "not_found",
            Kind::OneOrList(&Kind::Object(&CONDITION)),
            None,
            "When the answer shows that there is none: one condition or a list of them.",
        ),
        Field::new(
            "newer_than_attempt",
            Kind::Text(Form::Pointer),
            None,
            "Where the answer says when it was made; one a minute older than the attempt is no find.",
        ),
        Field::new(
            "settle",
            up_to(WEEK),
            None,
            "After which nothing can come of an attempt any more; response_timeout + 30s if left out.",
        ),
        Field::new("give_up", up_to(DECADE), Some("1h"), "For how long is asked; then an operator has to say."),
    ]],
};

static RECONCILE_REQUEST: Object = Object {
    name: "reconcile.request",
    groups: &[&[
        Field::new(
            "method",
            Kind::Text(Form::Method),
            Some("GET"),
            "GET or HEAD; another one only with `unsafe_method: true`.",
        ),
        Field::required(
            "path",
            Kind::Text(Form::Template(Place::Forwarded)),
            "Path and query, as in `/orders?request_id={key}`; what is not literal is percent-encoded.",
        ),
        Field::new(
            "headers",
            Kind::Templates,
            Some("{}"),
            "Headers; credentials need `store.seal`; one whose template lacks something is left out.",
        ),
        Field::new(
            "unsafe_method",
            Kind::Bool,
            Some("false"),
            "Whether the method may be one that could change something, which this one then must not.",
        ),
    ]],
};

static CONDITION: Object = Object {
    name: "condition",
    groups: &[&[
        Field::new("status", Kind::OneOrList(&Kind::Text(Form::Status)), None, "One of these; any 2xx if left out."),
        Field::new("when", Kind::Text(Form::Pointer), None, "The answer has a value there."),
        Field::new("when_missing", Kind::Text(Form::Pointer), None, "The answer has none there."),
    ]],
};

static RECONCILED: Object = Object {
    name: "reconcile.response",
    groups: &[&[
        Field::required("status", Kind::Integer { min: 200, max: 599 }, "Its status."),
        Field::new(
            "body",
            Kind::Text(Form::Part),
            Some("whole"),
            "Its body: a pointer into the lookup's answer, or `whole`.",
        ),
    ]],
};

static FINGERPRINT: Object = Object {
    name: "fingerprint",
    groups: &[&[
        Field::new(
            "body",
            Kind::Word(&[
                ("auto", Stage::Here),
                ("json", Stage::Here),
                ("form", Stage::Here),
                ("multipart", Stage::Here),
                ("raw", Stage::Here),
                ("none", Stage::Here),
            ]),
            Some("auto"),
            "How the body counts: auto, json, form, multipart, raw or none.",
        ),
        Field::new("query", Kind::Bool, Some("true"), "Whether the query counts."),
        Field::new(
            "headers",
            Kind::List { of: &Kind::Text(Form::Header), may_be_empty: true },
            Some("[]"),
            "Headers that count, besides Content-Type.",
        ),
        Field::new(
            "ignore",
            Kind::List { of: &Kind::Text(Form::Pointer), may_be_empty: true },
            Some("[]"),
            "JSON pointers to what is left out of the body, such as `/sent_at`.",
        ),
    ]],
};

/// What statuses mean.
pub(in crate::config) static STATUSES: Object = Object {
    name: "statuses",
    groups: &[&[
        Field::new(
            "release",
            Kind::List { of: &Kind::Text(Form::Status), may_be_empty: true },
            Some("[307, 308, 401, 425, 429, 503+retry-after]"),
            "Known not acted on: the next attempt may go.",
        ),
        Field::new(
            "unknown",
            Kind::List { of: &Kind::Text(Form::Status), may_be_empty: true },
            Some("[408, 502, 503, 504]"),
            "Nobody knows whether it was acted on.",
        ),
    ]],
};

static FORWARD_KEY: Object = Object {
    name: "forward_key",
    groups: &[&[
        Field::required("header", Kind::Text(Form::SettableHeader), "The header's name."),
        Field::new(
            "value",
            Kind::Text(Form::Template(Place::Forwarded)),
            Some("\"{key}\""),
            "Its value, such as `{key}` or `{record}`.",
        ),
    ]],
};

static FORMER: Object = Object {
    name: "former",
    groups: &[&[
        Field::required("name", Kind::Text(Form::Name), "The name it had."),
        Field::new(
            "key",
            Kind::Text(Form::Template(Place::Identity)),
            None,
            "The key it had; the present one if left out.",
        ),
        Field::new(
            "scope",
            Kind::Text(Form::Template(Place::Identity)),
            None,
            "The scope it had; the present one if left out.",
        ),
    ]],
};
