//! Answers as the client saw them.

use std::fmt;

use serde_json::Value;

use super::wire::{Fields, Head};

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Whole,
    /// It broke off, by an end of the connection or by a reset.
    Broken,
}

#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Fields,
    /// The statuses of the interim answers before it.
    pub(crate) interim: Vec<u16>,
    pub(crate) end: End,
}

impl Answer {
    pub(crate) fn of(head: Head, interim: Vec<u16>) -> Self {
        let status = status(&head);
        Self { status, fields: head.fields, body: Vec::new(), trailers: Fields::default(), interim, end: End::Broken }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.has(name)
    }

    pub(crate) fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{error} in {:?}", self.text()),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The word in `Onceward-Outcome`.
    pub(crate) fn outcome(&self) -> &str {
        self.header("onceward-outcome").unwrap_or("(none)")
    }

    /// The problem's code, or nothing if this is no problem of the proxy's.
    pub(crate) fn code(&self) -> String {
        let is_problem = self.header("content-type") == Some("application/problem+json");
        let code = is_problem.then(|| self.json()["code"].as_str().map(str::to_owned));
        code.flatten().unwrap_or_default()
    }

    /// The seconds in `Onceward-Expires`.
    pub(crate) fn expires(&self) -> Option<u64> {
        self.header("onceward-expires").map(|seconds| seconds.parse().expect("Onceward-Expires is a number of seconds"))
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.outcome() == "replayed"
    }

    /// Checks that this is the destination's answer to this very request.
    #[track_caller]
    pub(crate) fn is_executed(&self, status: u16) -> &Self {
        assert_eq!((self.status, self.outcome()), (status, "executed"), "{self:#?}");
        assert!(!self.has("idempotent-replayed"), "a first answer is no replay: {self:#?}");
        assert_eq!(self.end, End::Whole, "{self:#?}");
        self
    }

    /// Checks that this is a stored answer, said to be one.
    #[track_caller]
    pub(crate) fn is_replayed(&self, status: u16) -> &Self {
        assert_eq!((self.status, self.outcome()), (status, "replayed"), "{self:#?}");
        assert_eq!(self.header("idempotent-replayed"), Some("true"), "{self:#?}");
        assert_eq!(self.end, End::Whole, "{self:#?}");
        self
    }

    /// Checks that this replay equals the first answer: status, body, trailers,
    /// and every end-to-end header, in order within a name.
    #[track_caller]
    pub(crate) fn replays(&self, first: &Answer) -> &Self {
        self.is_replayed(first.status);
        assert_eq!(self.body, first.body, "a replay has the bytes of the first answer");
        assert_eq!(self.trailers, first.trailers, "a replay has the trailers of the first answer");
        assert_eq!(self.lasting(), first.lasting(), "a replay has the headers of the first answer");
        self
    }

    /// The headers that belong to the answer, not to the exchange, by name.
    fn lasting(&self) -> Vec<(String, String)> {
        const PASSING: [&str; 8] = [
            "idempotent-replayed",
            "onceward-outcome",
            "onceward-expires",
            "connection",
            "keep-alive",
            "transfer-encoding",
            "content-length",
            "set-cookie",
        ];
        let fields = self.fields.0.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
        let mut fields: Vec<_> = fields.filter(|(name, _)| !PASSING.contains(&name.as_str())).collect();
        // Stable: the order within a name stays.
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        fields
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body: String = self.text().chars().take(600).collect();
        let fields = self.fields.0.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>();
        let mut answer = f.debug_struct("Answer");
        answer.field("status", &self.status).field("fields", &fields).field("body", &body);
        answer.field("trailers", &self.trailers).field("end", &self.end).finish_non_exhaustive()
    }
}

/// The status in the start line of an answer.
pub(crate) fn status(head: &Head) -> u16 {
    let status = head.start.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.unwrap_or_else(|| panic!("no status in {:?}", head.start))
}
