//! `${NAME}` and `${NAME:-default}` inside values.
//!
//! References are replaced after the file has been parsed, so nothing that a
//! variable holds can change the file's structure. `${NAME:-default}` takes the
//! default where the variable is unset or empty, as in a shell; a default may
//! contain balanced braces, so that it can be a template. `$${` stands for a
//! literal `${`.

/// Where variables come from.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A value with its references replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Substituted {
    /// The text to use. Not for messages.
    pub(super) text: String,
    /// Whether anything in it came from the environment.
    pub(super) from_environment: bool,
}

/// Replaces the references in a value.
///
/// # Errors
/// One sentence a reference that is malformed or names no variable.
pub(super) fn substitute(written: &str, environment: Environment<'_>) -> Result<Substituted, Vec<String>> {
    let mut text = String::with_capacity(written.len());
    let mut errors = Vec::new();
    let mut from_environment = false;
    let mut rest = written;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(literal) = before.strip_suffix('$') {
            text.push_str(literal);
            text.push_str("${");
            rest = after;
            continue;
        }
        text.push_str(before);
        let Some((reference, after)) = split_at_closing_brace(after) else {
            errors.push("`${` without `}`; write `$${` for a literal `${`".into());
            rest = "";
            break;
        };
        match resolve(reference, environment) {
            Ok(value) => text.push_str(&value),
            Err(error) => errors.push(error),
        }
        from_environment = true;
        rest = after;
    }
    text.push_str(rest);
    if errors.is_empty() { Ok(Substituted { text, from_environment }) } else { Err(errors) }
}

/// What stands before the brace that closes the reference, and what after it.
fn split_at_closing_brace(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    for (index, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => return Some((text.get(..index)?, text.get(index + 1..)?)),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn resolve(reference: &str, environment: Environment<'_>) -> Result<String, String> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    if !is_name(name) {
        return Err(format!(
            "`${{{reference}}}` is no environment reference: a name consists of letters, digits and `_`; \
             write `$${{` for a literal `${{`"
        ));
    }
    if default.is_some_and(|default| default.contains("${")) {
        return Err(format!("`${{{reference}}}`: a default cannot contain another reference"));
    }
    match (environment(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!("the environment variable `{name}` is not set")),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "PORT" => Some("9000".into()),
            "EMPTY" => Some(String::new()),
            "TRICKY" => Some("${PORT}".into()),
            _ => None,
        }
    }

    fn text(written: &str) -> String {
        substitute(written, &environment).unwrap().text
    }

    #[test]
    fn references_are_replaced_inside_a_value() {
        assert_eq!(text("http://127.0.0.1:${PORT}/x"), "http://127.0.0.1:9000/x");
        assert_eq!(text("${PORT}${PORT}"), "90009000");
        assert_eq!(text("${NONE:-fallback}"), "fallback");
        assert_eq!(text("${PORT:-fallback}"), "9000");
        assert_eq!(text("${EMPTY:-fallback}"), "fallback");
        assert_eq!(text("${EMPTY}"), "");
        assert_eq!(text("${NONE:-}"), "");
        assert_eq!(text("${NONE:-{header:Authorization}}|{host}"), "{header:Authorization}|{host}");
    }

    #[test]
    fn what_is_no_reference_stays() {
        for written in ["", "$", "{header:X}", "$5", "a$b", "$PORT"] {
            let substituted = substitute(written, &environment).unwrap();
            assert_eq!((substituted.text.as_str(), substituted.from_environment), (written, false));
        }
        assert_eq!(text("$${PORT}"), "${PORT}");
    }

    #[test]
    fn a_variables_content_is_not_read_again() {
        assert_eq!(text("${TRICKY}"), "${PORT}");
    }

    #[test]
    fn every_bad_reference_is_told() {
        let errors = substitute("${NONE} ${1A} ${header:X} ${A:-${B}} ${", &environment).unwrap_err();
        assert_eq!(errors.len(), 5, "{errors:?}");
        assert!(errors.iter().any(|error| error == "the environment variable `NONE` is not set"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(written in "[${}A:\\-é]{0,24}") {
            let _ = substitute(&written, &environment);
        }
    }
}
