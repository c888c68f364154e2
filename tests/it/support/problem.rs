//! The problems of the contract, one row a code, and what a client may rely on
//! in each.

use super::answer::{Answer, End};

struct Row {
    code: &'static str,
    statuses: &'static [u16],
    advice: &'static str,
    should_retry: bool,
    retry_after: Option<(u64, u64)>,
}

const FIX: &str = "fix-request";
const RETRY: &str = "retry-same-key";
const ASK: &str = "ask-operator";
const PACED: Option<(u64, u64)> = Some((1, 60));

const fn row(
    code: &'static str,
    statuses: &'static [u16],
    advice: &'static str,
    should_retry: bool,
    retry_after: Option<(u64, u64)>,
) -> Row {
    Row { code, statuses, advice, should_retry, retry_after }
}

const ROWS: [Row; 21] = [
    row("key-missing", &[400], FIX, false, None),
    row("key-invalid", &[400], FIX, false, None),
    row("scope-missing", &[400], FIX, false, None),
    row("scope-invalid", &[400], FIX, false, None),
    row("body-invalid", &[400], FIX, false, None),
    row("path-ambiguous", &[400], FIX, false, None),
    row("header-nominated", &[400], FIX, false, None),
    row("body-too-large", &[413], FIX, false, None),
    row("key-reused", &[422, 409, 400], FIX, false, None),
    row("in-flight", &[409], RETRY, true, PACED),
    row("outcome-unknown", &[502, 504, 409], ASK, false, None),
    row("outcome-conflict", &[409], ASK, false, None),
    row("key-expired", &[409], ASK, false, None),
    row("response-not-stored", &[409], ASK, false, None),
    row("destination-unreachable", &[502], RETRY, true, Some((1, 1))),
    row("destination-failed", &[502, 504], RETRY, true, Some((1, 1))),
    row("store-unavailable", &[503], RETRY, true, PACED),
    row("overloaded", &[503], RETRY, true, PACED),
    row("shutting-down", &[503], RETRY, true, PACED),
    row("record-corrupt", &[503], ASK, false, None),
    // Where a retry goes on to the destination.
    row("outcome-unknown", &[502, 504, 409], RETRY, true, PACED),
];

/// Where a record may be named, and which state it is in.
const STATES: [(&str, &[&str]); 7] = [
    ("key-reused", &["in_flight", "completed", "unknown", "expired"]),
    ("in-flight", &["in_flight"]),
    ("outcome-unknown", &["unknown"]),
    ("outcome-conflict", &["unknown"]),
    ("key-expired", &["expired"]),
    ("response-not-stored", &["completed"]),
    ("destination-unreachable", &["released"]),
];

/// What is refused before there is a record.
const WITHOUT_RECORD: [&str; 9] = [
    "key-missing",
    "key-invalid",
    "scope-missing",
    "scope-invalid",
    "body-invalid",
    "path-ambiguous",
    "header-nominated",
    "body-too-large",
    "overloaded",
];

impl Answer {
    /// Checks that this is the problem of this code, with everything that the
    /// contract says about it.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str) -> &Self {
        let row = ROWS.iter().find(|row| row.code == code).expect("a code of the contract");
        self.fits(row, status)
    }

    /// Checks that this is `outcome-unknown` where a retry goes on.
    #[track_caller]
    pub(crate) fn is_unknown_but_goes_on(&self, status: u16) -> &Self {
        self.fits(&ROWS[ROWS.len() - 1], status)
    }

    /// Checks that this is an `outcome-unknown` on hold.
    #[track_caller]
    pub(crate) fn is_unknown(&self, status: u16) -> &Self {
        self.is_problem(status, "outcome-unknown")
    }

    #[track_caller]
    fn fits(&self, row: &Row, status: u16) -> &Self {
        assert!(row.statuses.contains(&status), "{status} is no status of {}", row.code);
        assert_eq!((self.status, self.code().as_str()), (status, row.code), "{self:#?}");
        assert_eq!(self.end, End::Whole, "a problem is delivered whole");
        let said = self.json();
        assert_eq!(said["status"], status);
        assert_eq!(said["advice"], row.advice, "{said:#}");
        assert_eq!(self.header("cache-control"), Some("no-store"));
        self.tells_whether_to_retry(row);
        self.says_it_where_sdks_look(row.code);
        self.names_its_record(row.code);
        self
    }

    #[track_caller]
    fn tells_whether_to_retry(&self, row: &Row) {
        let told = if row.should_retry { "true" } else { "false" };
        assert_eq!(self.fields.all("x-should-retry"), [told], "{}: {self:#?}", row.code);
        assert_eq!(self.fields.all("stripe-should-retry"), [told], "{}: {self:#?}", row.code);
        let pace = self.header("retry-after").map(|pace| pace.parse::<u64>().expect("seconds"));
        match row.retry_after {
            None => assert_eq!(pace, None, "{}", row.code),
            Some((least, most)) => {
                let pace = pace.unwrap_or_else(|| panic!("{} says when to retry", row.code));
                assert!((least..=most).contains(&pace), "{}: Retry-After {pace}", row.code);
            }
        }
    }

    #[track_caller]
    fn says_it_where_sdks_look(&self, code: &str) {
        let said = self.json();
        let text = |member: &str| said[member].as_str().unwrap_or_else(|| panic!("`{member}` in {said:#}")).to_owned();
        let (title, detail) = (text("title"), text("detail"));
        assert!(text("type").ends_with(code), "{said:#}");
        assert!(!title.is_empty() && !detail.is_empty(), "{said:#}");
        assert_eq!(said["error"]["type"], "idempotency_error");
        assert_eq!(said["error"]["code"], code);
        assert_eq!(said["error"]["message"], format!("{title}: {detail}"));
    }

    #[track_caller]
    fn names_its_record(&self, code: &str) {
        let said = self.json();
        if WITHOUT_RECORD.contains(&code) {
            assert_eq!(self.outcome(), "refused", "{code}");
            assert!(said.get("record").is_none(), "no record is named where there is none: {said:#}");
        }
        let unguarded = self.outcome() == "(none)";
        let Some((_, states)) = STATES.iter().find(|(of, _)| *of == code && !unguarded) else { return };
        assert!(said["record"].as_str().is_some_and(|id| !id.is_empty()), "{said:#}");
        assert!(states.contains(&said["state"].as_str().unwrap_or_default()), "{said:#}");
        let outcome = if matches!(code, "outcome-unknown" | "outcome-conflict") { "unknown" } else { "refused" };
        assert_eq!(self.outcome(), outcome, "{code}");
    }
}
