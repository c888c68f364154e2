//! The result of a run as a terminal shows it.

use std::fmt::Write as _;

use super::summary::{Comparison, Latency, Line, Summary};
use super::tally::Outcome;

/// How wide the longest bar is, in characters.
const WIDEST: usize = 48;
/// How late the bench itself may be before its latencies are the bench's, in
/// microseconds.
const LATE: u64 = 2_000;

/// A run: its table, its histogram and its check.
pub fn picture(run: &Summary) -> String {
    let mut text = String::new();
    let settings = &run.settings;
    let pace = if settings.pace == "closed" {
        format!("as fast as {} connections are answered", settings.connections)
    } else {
        settings.pace.clone()
    };
    let _ = writeln!(
        text,
        "{:.1} s of {} {} in {}, {pace}, bodies of {} bytes, seed {}\n",
        run.seconds, settings.method, settings.target, settings.http, settings.body_size, settings.seed
    );
    table(&mut text, run);
    bars(&mut text, run);
    let _ = writeln!(text, "\n{:.1} answers/s; {} requests before that to warm up", run.rate, run.warmed_up);
    if run.lag.p99 > LATE {
        let _ = writeln!(
            text,
            "the bench itself was late by {} (p50) and {} (p99): this machine, or --connections, is too small for the \
             rate, and these latencies are not the target's alone",
            time(run.lag.p50),
            time(run.lag.p99)
        );
    }
    for (status, count) in &run.refusals {
        let _ = writeln!(text, "{count} × refused or unknown with status {status}");
    }
    for (what, count) in &run.failures {
        let _ = writeln!(text, "{count} × {what}");
    }
    check(&mut text, run);
    text
}

fn table(text: &mut String, run: &Summary) {
    let _ = writeln!(
        text,
        "{:<11}{:>10}{:>9}{:>11}{:>11}{:>11}{:>11}{:>11}",
        "outcome", "requests", "share", "p50", "p90", "p99", "p99.9", "max"
    );
    for outcome in Outcome::ALL.map(Outcome::as_str) {
        if let Some(Line { requests, latency }) = run.outcomes.get(outcome) {
            let share = 100.0 * *requests as f64 / run.requests.max(1) as f64;
            row(text, outcome, *requests, &format!("{share:.1} %"), latency);
        }
    }
    let answered: u64 = run.histogram.iter().map(|bar| bar.requests).sum();
    row(text, "answered", answered, "", &run.latency);
}

fn row(text: &mut String, name: &str, requests: u64, share: &str, latency: &Latency) {
    let Latency { p50, p90, p99, p99_9, max, .. } = *latency;
    let [p50, p90, p99, p99_9, max] = [p50, p90, p99, p99_9, max].map(time);
    let _ = writeln!(text, "{name:<11}{requests:>10}{share:>9}{p50:>11}{p90:>11}{p99:>11}{p99_9:>11}{max:>11}");
}

fn bars(text: &mut String, run: &Summary) {
    let Some(most) = run.histogram.iter().map(|bar| bar.requests).max() else { return };
    text.push_str("\nlatency, from when a request was due\n");
    for bar in &run.histogram {
        // Whatever there was can be seen.
        let width = (WIDEST as u64 * bar.requests).div_ceil(most) as usize;
        let _ = writeln!(text, "  ≤ {:>9} {:<WIDEST$} {}", time(bar.up_to), "█".repeat(width), bar.requests);
    }
}

fn check(text: &mut String, run: &Summary) {
    let check = &run.check;
    let counted = match check.executions {
        Some(executions) => format!("{} keys answered, {executions} executions counted at the destination", check.keys),
        None => format!("{} keys answered, executions not counted (see --count)", check.keys),
    };
    if check.passed() && check.keys == 0 {
        let _ = writeln!(text, "NOTHING CHECKED: {counted}");
        return;
    }
    if check.passed() {
        let _ = writeln!(text, "check passed: {counted}; no key executed twice, no replay differed");
        return;
    }
    let _ = writeln!(text, "CHECK FAILED: {counted}");
    for fault in &check.faults {
        let _ = writeln!(text, "  {} × {}, such as {}", fault.count, fault.what, fault.keys.join(", "));
    }
}

/// Two runs: ratios with their spread.
pub fn comparison(compared: &Comparison) -> String {
    let mut text = format!("{:<11}{:>12}{:>12}{:>9}   most seconds\n", "", "old", "new", "ratio");
    for (name, old, new) in &compared.lines {
        let shown = |value: f64| if *name == "requests/s" { format!("{value:.1}") } else { time(value as u64) };
        let ratio = new.over(old).map_or_else(
            || "        –".to_owned(),
            |ratio| format!("{:>9.3}   {:.3} to {:.3}", ratio.whole, ratio.low, ratio.high),
        );
        let _ = writeln!(text, "{name:<11}{:>12}{:>12}{ratio}", shown(old.whole), shown(new.whole));
    }
    if !compared.is_alike {
        text.push_str("the two runs were not sent the same: their settings differ, and the ratios with them\n");
    }
    text
}

/// A time in microseconds, in three digits.
pub fn time(micros: u64) -> String {
    let value = micros as f64;
    let (value, unit) = match micros {
        0..1_000 => return format!("{micros} µs"),
        1_000..1_000_000 => (value / 1e3, "ms"),
        _ => (value / 1e6, "s"),
    };
    let digits = 2_usize.saturating_sub(value.log10() as usize);
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let shown = [0, 999, 1_000, 12_345, 123_456, 1_234_567, 61_000_000].map(time);
        assert_eq!(shown, ["0 µs", "999 µs", "1.00 ms", "12.3 ms", "123 ms", "1.23 s", "61.0 s"]);
    }
}
