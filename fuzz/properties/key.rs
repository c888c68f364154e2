//! A key is one, however it is spelled, and nothing else is a key.

use onceward::model::key::{IdempotencyKey, MAX_KEY_BYTES};

pub fn holds(data: &[u8]) {
    let Ok(key) = IdempotencyKey::parse(data) else { return };
    let text = key.as_str();
    assert!((1..=MAX_KEY_BYTES).contains(&text.len()));
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));

    let quoted = format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut spellings = vec![quoted.clone(), format!(" {quoted}\t"), format!("{quoted}; a=1;b")];
    if !text.contains(['"', ',']) {
        spellings.push(text.to_owned());
    }
    for spelling in spellings {
        assert_eq!(IdempotencyKey::parse(spelling.as_bytes()).as_ref(), Ok(&key), "{spelling}");
    }
    let twice = [data, b", ", data].concat();
    assert!(IdempotencyKey::parse(&twice).is_err(), "two keys name no single action");
}
