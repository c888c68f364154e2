//! Faults, asked for by the request that is to suffer them.
//!
//! A client that wants to see what its retries do writes the trouble it wants
//! on the request itself, in `Ledger-*` headers; [`HELP`] lists them all. A
//! header that is unknown, malformed, repeated or at odds with another is an
//! error, never ignored: a test whose fault was misspelt must not pass.
//!
//! "Acting" is the moment an order enters the book and the counts grow. What
//! is asked for happens in this order: interim response, `Ledger-Delay`, cuts
//! marked `before`, the act, `Ledger-Delay-After`, cuts marked `after`, answer.

use std::time::Duration;

/// What the ledger answers and which faults it knows, for people.
pub const HELP: &str = "\
The practice ledger: an API that counts how often it was made to act.

  POST  /orders                  makes an order (an execution): 201, Location
  GET   /orders                  all orders
  GET   /orders?request_id=KEY   the orders made under KEY, [] if none
  GET   /orders/ID               one order
  PATCH /orders/ID               amends it (an execution)
  POST  /orders/ID/cancel        cancels it (an execution)
  POST  /any/other/path          an execution; so are PUT, PATCH and DELETE
  ANY   /echo                    what arrived, exactly; not an execution
  GET   /stats                   the counts
  POST  /reset                   forgets everything

KEY is the request's Idempotency-Key, or else its X-Request-Id, or else the
member request_id of its JSON body.

Faults are asked for with request headers:

  Ledger-Delay: 500ms            waits before acting
  Ledger-Delay-After: 2s         waits after acting, before answering
  Ledger-Drop: before|after      closes without a byte, before or after acting
  Ledger-Reset: before|after     the same, with a TCP reset
  Ledger-Half: head|body         acts, closes half-way through head or body
  Ledger-Stall: head|body        acts, sends nothing or half the body, and stays
                                 silent until the client leaves
  Ledger-Status: 503             answers this status instead of its own
  Ledger-Retry-After: 1          adds Retry-After, in seconds
  Ledger-Act: no                 does not act
  Ledger-Chunked: 3              answers in so many chunks
  Ledger-Sse: 5                  answers with so many server-sent events
  Ledger-Gap: 200ms              waits between chunks (default: 0) or events
                                 (default: 100ms)
  Ledger-Trailers: yes           ends a chunked answer with Ledger-Checksum
  Ledger-Size: 1MiB              pads the answer's body to this size
  Ledger-Interim: 103            sends this interim response first
  Ledger-Close: yes              answers with Connection: close
  Ledger-Times: 2                only the first 2 requests with this key (or,
                                 without a key, this method and target) suffer
                                 the faults; later ones are answered normally

One of Drop, Reset, Half and Stall, and one of Chunked and Sse, can be had at a
time. An unknown Ledger- header or a bad value is answered with 400: no act.
";

/// Without a gap of its own, a stream of events would arrive as one piece.
const EVENT_GAP: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
const MOST_PIECES: u64 = 10_000;
const MOST_TIMES: u64 = 1_000_000;
const LARGEST_SIZE: u64 = 64 * 1024 * 1024;

/// On which side of the act a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    Before,
    After,
}

/// In which part of the answer a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Head,
    Body,
}

/// How the exchange ends short of a whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Drop(When),
    Reset(When),
    Half(Part),
    Stall(Part),
}

impl Cut {
    /// Whether the connection ends before the act.
    pub(super) fn is_before(self) -> bool {
        matches!(self, Self::Drop(When::Before) | Self::Reset(When::Before))
    }
}

/// How the answer's body is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Shape {
    /// Whole, with its length.
    #[default]
    Plain,
    /// In this many chunks.
    Chunked(u64),
    /// As this many server-sent events, each a chunk.
    Events(u64),
}

/// All that one request asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Faults {
    pub delay: Duration,
    pub delay_after: Duration,
    pub cut: Option<Cut>,
    pub status: Option<u16>,
    pub retry_after: Option<u64>,
    pub act: bool,
    pub shape: Shape,
    pub gap: Duration,
    pub trailers: bool,
    pub size: Option<usize>,
    pub interim: Option<u16>,
    pub close: bool,
    pub times: Option<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            delay_after: Duration::ZERO,
            cut: None,
            status: None,
            retry_after: None,
            act: true,
            shape: Shape::Plain,
            gap: Duration::ZERO,
            trailers: false,
            size: None,
            interim: None,
            close: false,
            times: None,
        }
    }
}

impl Faults {
    /// Reads the `Ledger-*` headers among `headers`; the error is for people.
    pub(super) fn parse<'a>(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Self, String> {
        let mut faults = Self::default();
        let mut gap = None;
        let mut seen = Vec::new();
        for (name, value) in headers {
            let lower = name.to_ascii_lowercase();
            let Some(fault) = lower.strip_prefix("ledger-") else {
                continue;
            };
            if seen.contains(&lower) {
                return Err(format!("{name} is given more than once"));
            }
            let expected = match std::str::from_utf8(value.trim_ascii()) {
                Ok(value) => faults.set(fault, value, &mut gap),
                Err(_) => Err("plain text".to_owned()),
            };
            if let Err(expected) = expected {
                return Err(if expected.is_empty() {
                    format!("{name} is not a header the ledger knows; GET / lists them")
                } else {
                    let value = String::from_utf8_lossy(value);
                    format!("{name}: {value:?} is not {expected}")
                });
            }
            seen.push(lower);
        }
        faults.settle(gap, &seen)
    }

    /// Sets one fault. The error says what the value should have been, or is
    /// empty if there is no such fault.
    fn set(&mut self, fault: &str, value: &str, gap: &mut Option<Duration>) -> Result<(), String> {
        match fault {
            "delay" => self.delay = duration(value)?,
            "delay-after" => self.delay_after = duration(value)?,
            "drop" => self.cut = Some(Cut::Drop(when(value)?)),
            "reset" => self.cut = Some(Cut::Reset(when(value)?)),
            "half" => self.cut = Some(Cut::Half(part(value)?)),
            "stall" => self.cut = Some(Cut::Stall(part(value)?)),
            "status" => self.status = Some(status(value, 200, 599)?),
            "retry-after" => self.retry_after = Some(number(value, 0, u64::from(u32::MAX))?),
            "act" => self.act = yes(value)?,
            "chunked" => self.shape = Shape::Chunked(number(value, 1, MOST_PIECES)?),
            "sse" => self.shape = Shape::Events(number(value, 1, MOST_PIECES)?),
            "gap" => *gap = Some(duration(value)?),
            "trailers" => self.trailers = yes(value)?,
            "size" => self.size = Some(size(value)?),
            "interim" => {
                let interim = status(value, 100, 199)?;
                if interim == 101 {
                    // It would end HTTP on this connection.
                    return Err("a status other than 101".to_owned());
                }
                self.interim = Some(interim);
            }
            "close" => self.close = yes(value)?,
            "times" => self.times = Some(number(value, 1, MOST_TIMES)?),
            _ => return Err(String::new()),
        }
        Ok(())
    }

    /// Refuses what cannot be had together, and fills in the gap.
    fn settle(mut self, gap: Option<Duration>, seen: &[String]) -> Result<Self, String> {
        let count = |names: &[&str]| {
            let among = |name: &&String| names.contains(&name.as_str());
            seen.iter().filter(among).count()
        };
        if count(&["ledger-drop", "ledger-reset", "ledger-half", "ledger-stall"]) > 1 {
            return Err("only one of Ledger-Drop, -Reset, -Half and -Stall can be had".to_owned());
        }
        if count(&["ledger-chunked", "ledger-sse"]) > 1 {
            return Err("only one of Ledger-Chunked and Ledger-Sse can be had".to_owned());
        }
        match self.shape {
            Shape::Plain if gap.is_some() || self.trailers => {
                return Err("Ledger-Gap and Ledger-Trailers need Ledger-Chunked or Ledger-Sse".to_owned());
            }
            Shape::Events(_) if self.size.is_some() => {
                return Err("Ledger-Size cannot be had with Ledger-Sse".to_owned());
            }
            Shape::Plain | Shape::Chunked(_) => self.gap = gap.unwrap_or_default(),
            Shape::Events(_) => self.gap = gap.unwrap_or(EVENT_GAP),
        }
        // 204, 205 and 304 cannot carry what these ask for.
        let bare = self.status.is_some_and(super::answer::is_bare);
        if bare && (self.shape != Shape::Plain || self.size.is_some()) {
            return Err("a status without a body goes with no shape or size of one".to_owned());
        }
        Ok(self)
    }
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // `parse` alone would take a sign.
    let value = if digits { text.parse().ok() } else { None };
    value.filter(|value| (least..=most).contains(value)).ok_or_else(|| format!("a whole number from {least} to {most}"))
}

fn status(text: &str, least: u16, most: u16) -> Result<u16, String> {
    let value = number(text, least.into(), most.into())?;
    u16::try_from(value).map_err(|_| format!("a status up to {most}"))
}

/// A number and what follows it.
fn split_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit))
}

fn duration(text: &str) -> Result<Duration, String> {
    let value = split_unit(text).and_then(|(number, unit)| match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
        _ => None,
    });
    value.filter(|value| *value <= LONGEST_WAIT).ok_or_else(|| "a time such as 500ms, 2s or 1m, at most 60m".to_owned())
}

fn size(text: &str) -> Result<usize, String> {
    let value = split_unit(text).and_then(|(number, unit)| match unit {
        "" | "B" => Some(number),
        "KiB" => number.checked_mul(1 << 10),
        "MiB" => number.checked_mul(1 << 20),
        _ => None,
    });
    value
        .filter(|value| *value <= LARGEST_SIZE)
        .and_then(|value| usize::try_from(value).ok())
        .ok_or_else(|| "a size such as 512, 64KiB or 1MiB, at most 64MiB".to_owned())
}

fn when(text: &str) -> Result<When, String> {
    match text {
        "before" => Ok(When::Before),
        "after" => Ok(When::After),
        _ => Err("before or after".to_owned()),
    }
}

fn part(text: &str) -> Result<Part, String> {
    match text {
        "head" => Ok(Part::Head),
        "body" => Ok(Part::Body),
        _ => Err("head or body".to_owned()),
    }
}

fn yes(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("yes or no".to_owned()),
    }
}
