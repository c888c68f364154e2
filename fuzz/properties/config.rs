//! Any text is a configuration or a list of findings, and no finding tells a
//! secret.

use std::path::Path;

use onceward::config;

/// What every variable of the environment holds.
const SECRET: &str = "S3CR3T-0f-th3-3nv1r0nm3nt";

pub fn holds(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Files that a configuration may name are not there.
    let nowhere = Path::new("/nonexistent/onceward");
    let load = || config::parse(text, "onceward.yaml", nowhere, &|_| Some(SECRET.to_owned()));
    // YAML breaks lines at either (1.2.2, section 5.4); the end counts as a line.
    let lines = text.split(['\n', '\r']).count();
    let findings = match load() {
        Ok(loaded) => {
            assert!(!loaded.warnings.has_errors());
            loaded.warnings
        }
        Err(findings) => {
            assert!(findings.has_errors(), "a refusal has its reason");
            findings
        }
    };
    let shown = findings.to_string();
    assert!(!shown.contains(SECRET), "{shown}");
    for position in findings.iter().filter_map(|finding| finding.position) {
        assert!((1..=lines + 1).contains(&position.line), "{shown}");
    }
    let again = match load() {
        Ok(loaded) => loaded.warnings,
        Err(findings) => findings,
    };
    assert_eq!(again.to_string(), shown, "the same text, the same findings");
}
