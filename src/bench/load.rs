//! What a load is: how fast, of what, and against what.

use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, Uri};

/// What is sent, how fast and for how long.
#[derive(Debug, Clone)]
pub struct Load {
    /// Where it goes.
    pub target: Uri,
    /// The request's method.
    pub method: Method,
    /// Fields that every request carries besides its own.
    pub headers: HeaderMap,
    /// The field that carries the key.
    pub key_header: HeaderName,
    /// How fast.
    pub pace: Pace,
    /// How long nothing is measured at the beginning.
    pub warm_up: Duration,
    /// Whether HTTP/2 is spoken, and not HTTP/1.1.
    pub http2: bool,
    /// How many connections there are at most; of HTTP/2, how many there are.
    pub connections: usize,
    /// How long one answer may take.
    pub timeout: Duration,
    /// Of what.
    pub mix: Mix,
}

/// How fast requests are sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Pace {
    /// Open loop: by the clock, whatever the answers do.
    Open(Vec<Stage>),
    /// Closed loop, for so long: each connection sends when it was answered.
    Closed(Duration),
}

impl Pace {
    /// How long it goes on.
    pub fn lasts(&self) -> Duration {
        match self {
            Pace::Open(stages) => stages.iter().map(|stage| stage.lasts).sum(),
            Pace::Closed(lasts) => *lasts,
        }
    }
}

/// A stretch of time in which the rate is the same or grows evenly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stage {
    /// Requests a second at its beginning.
    pub from: f64,
    /// Requests a second at its end.
    pub to: f64,
    /// How long it goes on.
    pub lasts: Duration,
}

impl Stage {
    /// How many requests are due by its end.
    fn arrivals(&self) -> f64 {
        f64::midpoint(self.from, self.to) * self.lasts.as_secs_f64()
    }

    /// When the request is due that `before` others of this stage precede: where
    /// the area under the rate has grown to that.
    fn time_of(&self, before: f64) -> f64 {
        let slope = (self.to - self.from) / self.lasts.as_secs_f64();
        // Of the two forms of the root this one has no small difference of large
        // numbers in it, and none is divided by a slope of nothing.
        2.0 * before / (self.from + (self.from * self.from + 2.0 * slope * before).max(0.0).sqrt())
    }
}

/// When the request is due that `before` others precede, counted from the
/// beginning; `None` once the stages are over.
pub(super) fn due(stages: &[Stage], before: u64) -> Option<Duration> {
    let mut left = before as f64;
    let mut begun = Duration::ZERO;
    for stage in stages {
        if left < stage.arrivals() {
            let within = Duration::try_from_secs_f64(stage.time_of(left)).unwrap_or_default();
            return Some(begun + within.min(stage.lasts));
        }
        left -= stage.arrivals();
        begun += stage.lasts;
    }
    None
}

/// What a load consists of. Shares are of all requests, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mix {
    /// Repeats sent the moment the first request is answered.
    pub immediate: f64,
    /// Repeats sent in the same instant as the first request.
    pub concurrent: f64,
    /// Repeats sent [`later`](Self::later).
    pub late: f64,
    /// Requests with a key that is known and another body, sent as late.
    pub mismatched: f64,
    /// First requests whose client hangs up. Each is repeated later, which takes
    /// as much again.
    pub hung_up: f64,
    /// How much later that is.
    pub later: Duration,
    /// How long a client that hangs up waits before it does.
    pub patience: Duration,
    /// How many keys there are, drawn evenly; `None`: a new one each time.
    pub keys: Option<u64>,
    /// How large bodies are, in bytes.
    pub body_size: usize,
    /// What bodies and draws are made of.
    pub seed: u64,
}

impl Mix {
    /// The share that is left for first requests, those that are hung up on among
    /// them.
    pub fn firsts(&self) -> f64 {
        1.0 - self.immediate - self.concurrent - self.late - self.mismatched - self.hung_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(from: f64, to: f64, seconds: u64) -> Stage {
        Stage { from, to, lasts: Duration::from_secs(seconds) }
    }

    fn all(stages: &[Stage]) -> Vec<Duration> {
        (0..).map_while(|before| due(stages, before)).collect()
    }

    #[test]
    fn a_constant_rate_is_evenly_spaced() {
        let times = all(&[stage(4.0, 4.0, 2)]);
        assert_eq!(times.len(), 8);
        assert_eq!(times[..3], [0, 250, 500].map(Duration::from_millis));
    }

    #[test]
    fn a_ramp_sends_as_many_as_the_area_under_it_and_ever_faster() {
        for (from, to) in [(0.0, 100.0), (100.0, 0.0), (20.0, 80.0)] {
            let times = all(&[stage(from, to, 10)]);
            assert!((499..=501).contains(&times.len()), "{from} {to}: {}", times.len());
            let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
            let is_sorted = if from < to {
                gaps.is_sorted_by(|a, b| a + 1e-6 >= *b)
            } else {
                gaps.is_sorted_by(|a, b| *a <= b + 1e-6)
            };
            assert!(is_sorted, "{from} {to}");
        }
    }

    #[test]
    fn steps_follow_each_other() {
        let times = all(&[stage(1.0, 1.0, 2), stage(2.0, 2.0, 1)]);
        assert_eq!(times, [0, 1000, 2000, 2500].map(Duration::from_millis));
    }
}
