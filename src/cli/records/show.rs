//! `onceward records show`: a receipt for people.

use std::io::Write;

use anyhow::bail;
use serde_json::Value;

use super::{Reach, encoded, full_id};
use crate::clock::{Clock, SystemClock};
use crate::model::time::Timestamp;

/// Show a record: what is known, what is not, and how it is ended
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("which").args(["id", "key"]).required(true),
    after_help = "Examples:\n  onceward records show 5f0c7d0e9c6f\n  onceward records show --route create-order --key order-1042"
)]
pub(super) struct Arguments {
    /// The record's id, or the beginning of it: the log shows 12 digits
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// The route's name, to find a record by its key
    #[arg(long, value_name = "NAME", requires = "key", conflicts_with = "id")]
    route: Option<String>,
    /// The key
    #[arg(long, value_name = "KEY", requires = "route")]
    key: Option<String>,
    /// The scope's digest, where several callers have used the key
    #[arg(long, value_name = "DIGEST", requires = "key")]
    scope: Option<String>,
    /// The receipt as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reach: Reach,
}

pub(super) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let api = arguments.reach.api()?;
    let id = match (&arguments.id, &arguments.route, &arguments.key) {
        (Some(id), ..) => full_id(&api, id).await?,
        (None, Some(route), Some(key)) => {
            let mut target = format!("/v1/records:lookup?route={}&key={}", encoded(route), encoded(key));
            if let Some(scope) = &arguments.scope {
                target.push_str(&format!("&scope={}", encoded(scope)));
            }
            let mut found: Vec<String> = Vec::new();
            api.walk(&target, |record| {
                found.extend(record["id"].as_str().map(str::to_owned));
                true
            })
            .await?;
            match found.as_slice() {
                [one] => one.clone(),
                [] => bail!("there is no record of this key on the route {route}"),
                several => bail!(
                    "{} callers have used this key; show one of them by its id:\n  {}",
                    several.len(),
                    several.join("\n  ")
                ),
            }
        }
        (None, ..) => bail!("name a record by its id, or by --route and --key"),
    };
    let receipt = api.get(&format!("/v1/records/{id}")).await?;
    if arguments.json {
        writeln!(std::io::stdout(), "{receipt:#}")?;
        return Ok(());
    }
    print(&receipt)
}

/// Prints a receipt.
pub(super) fn print(receipt: &Value) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    write!(out, "{}", Sheet(receipt))?;
    Ok(())
}

/// A receipt, told.
struct Sheet<'a>(&'a Value);

impl Sheet<'_> {
    fn text(&self, name: &str) -> String {
        printable(self.0[name].as_str().unwrap_or_default())
    }

    fn has_conflict(&self) -> bool {
        self.0["unknown"]["conflict"] == true
    }

    /// What is known and what is not, in a sentence or two.
    fn headline(&self) -> String {
        let status = &self.0["response"]["status"];
        match self.0["state"].as_str().unwrap_or_default() {
            "in_flight" => "IN FLIGHT: an attempt is running, and its outcome is awaited.".into(),
            "completed" => {
                let how = match self.0["outcome"].as_str() {
                    Some("reconciled") if self.was_decided("completed") => "an operator said so",
                    Some("reconciled") => "a lookup at the destination found it",
                    _ => "the destination answered",
                };
                let kept = match self.0["response"]["not_stored"].as_str() {
                    None => "Retries get that answer.".to_owned(),
                    Some(why) => format!("Retries get 409 response-not-stored: the answer is {}.", printable(why)),
                };
                format!("COMPLETED with status {status}: {how}. {kept}")
            }
            "unknown" if self.has_conflict() => format!(
                "UNKNOWN, IN CONFLICT, since {} ({}): the destination has something else under this key. Nothing is sent until somebody decides.",
                self.0["unknown"]["since"].as_str().unwrap_or_default(),
                age_of(self.0["unknown"]["since"].as_str()),
            ),
            "unknown" => format!(
                "UNKNOWN since {} ({}): {}. Nobody knows whether the destination acted.",
                self.0["unknown"]["since"].as_str().unwrap_or_default(),
                age_of(self.0["unknown"]["since"].as_str()),
                printable(self.0["unknown"]["reason"].as_str().unwrap_or_default()),
            ),
            "released" => format!(
                "NOT EXECUTED: {}. The key is open: the next request with it is executed.",
                self.text("released_because")
            ),
            "expired" => "EXPIRED: its time is over, and the key is still remembered. A retry gets 409 key-expired and is not executed.".into(),
            other => printable(other),
        }
    }

    fn was_decided(&self, decision: &str) -> bool {
        self.0["decisions"].as_array().into_iter().flatten().any(|taken| taken["decision"] == decision)
    }

    /// Everything that happened, in its order.
    fn timeline(&self) -> Vec<(String, String)> {
        let mut events: Vec<(String, String)> = Vec::new();
        let list = |name: &str| self.0[name].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| printable(value.as_str().unwrap_or_default());
        for attempt in list("attempts") {
            let number = &attempt["number"];
            events.push((
                text(&attempt["started_at"]),
                format!("attempt {number} began (node {})", text(&attempt["node"])),
            ));
            if attempt["ended_at"].is_string() {
                events.push((
                    text(&attempt["ended_at"]),
                    format!("attempt {number} ended: {}", text(&attempt["outcome"])),
                ));
            }
        }
        for lookup in list("lookups") {
            let status = lookup["status"].as_u64().map(|status| format!(", status {status}")).unwrap_or_default();
            let why = lookup["why"].as_str().map(|why| format!(" ({})", printable(why))).unwrap_or_default();
            let told = format!(
                "asked the destination ({}{status}): {}{why}",
                text(&lookup["occasion"]),
                text(&lookup["result"])
            );
            events.push((text(&lookup["ended_at"]), told));
        }
        for decision in list("decisions") {
            let told = format!(
                "{} decided {} about attempt {}: {}",
                text(&decision["operator"]),
                text(&decision["decision"]),
                decision["attempt"],
                text(&decision["reason"])
            );
            events.push((text(&decision["at"]), told));
        }
        for (name, what) in
            [("completed_at", "answer stored"), ("notified_at", "somebody was told that it stays unknown")]
        {
            if self.0[name].is_string() {
                events.push((self.text(name), what.into()));
            }
        }
        // Stable: what happened in one millisecond stays as it was told.
        events.sort_by(|a, b| a.0.cmp(&b.0));
        events
    }

    /// What comes by itself, and what to do.
    fn next(&self) -> Vec<String> {
        let id = self.text("id");
        let mut lines = Vec::new();
        match self.0["state"].as_str().unwrap_or_default() {
            "unknown" => {
                match self.0["next_lookup_at"].as_str() {
                    Some(at) if !self.has_conflict() => {
                        lines.push(format!("The destination was asked; it is asked again at {at} as long as the route says so, and when a retry comes."));
                    }
                    _ => lines.push("If nothing else is said here, it stays so until somebody decides.".into()),
                }
                let attempts = self.0["attempts"].as_array().map_or(0, Vec::len);
                let last = &self.0["attempts"][attempts.saturating_sub(1)]["number"];
                let attempt = if last.as_u64() > Some(1) { format!(" --attempt {last}") } else { String::new() };
                lines.push("Look into the destination's own books for this key. Then:".into());
                lines.push(format!("  if it happened:        onceward records resolve {id} --completed --status 201 --body '…'{attempt} --operator YOU --reason '…'"));
                lines.push(format!("  if it did not happen:  onceward records resolve {id} --not-executed{attempt} --operator YOU --reason '…'"));
            }
            "in_flight" => lines.push("It cannot be decided while it runs. Look again in a while.".into()),
            "completed" | "expired" | "released" => {}
            _ => {}
        }
        lines
    }
}

impl std::fmt::Display for Sheet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.headline())?;
        writeln!(f)?;
        for (label, name) in [
            ("record", "id"),
            ("route", "route"),
            ("key", "key"),
            ("scope", "scope"),
            ("fingerprint", "fingerprint"),
            ("created", "created_at"),
            ("expires", "expires_at"),
            ("guarded until", "guarded_until"),
        ] {
            if self.0[name].is_string() {
                writeln!(f, "  {label:<14} {}", self.text(name))?;
            }
        }
        let repeats = |count: &str, last: &str| match self.0[last].as_str() {
            Some(at) => format!("{}, the last at {at}", self.0[count]),
            None => self.0[count].to_string(),
        };
        writeln!(f, "  {:<14} {}", "replays", repeats("replays", "last_replay_at"))?;
        writeln!(f, "  {:<14} {}", "mismatches", repeats("mismatches", "last_mismatch_at"))?;
        writeln!(f)?;
        for (at, what) in self.timeline() {
            writeln!(f, "  {at}  {what}")?;
        }
        let next = self.next();
        if !next.is_empty() {
            writeln!(f)?;
            for line in next {
                writeln!(f, "{line}")?;
            }
        }
        Ok(())
    }
}

/// A text that does nothing to a terminal.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

/// How long ago that was, roughly.
pub(super) fn age_of(time: Option<&str>) -> String {
    let then = time.and_then(|time| time.parse::<jiff::Timestamp>().ok());
    let Some(then) = then else { return "-".into() };
    let then = Timestamp::from_millis(u64::try_from(then.as_millisecond()).unwrap_or(0));
    let seconds = then.until(SystemClock.now()).as_secs();
    let (unit, of) = match seconds {
        0..120 => (1, "s"),
        120..7_200 => (60, "min"),
        7_200..172_800 => (3_600, "h"),
        _ => (86_400, "d"),
    };
    format!("{} {of} ago", seconds / unit)
}
