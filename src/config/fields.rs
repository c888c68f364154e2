//! An object of the file after it was held against the table: well-formed
//! values by name, each knowing where it was written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::HeaderName;

use super::finding::{At, Report};
use super::kind::{Kind, Object};
use super::value::Value;
use super::walk;
use crate::plan::RedisUrl;
use crate::plan::template::Template;

/// A value, and where and how it was written.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) at: At,
    /// The value as it may be shown: environment references unreplaced.
    pub(super) shown: String,
    pub(super) value: Value,
}

/// An object's values by field name.
#[derive(Debug, Clone)]
pub(super) struct Fields {
    pub(super) at: At,
    pub(super) object: &'static Object,
    pub(super) given: BTreeMap<&'static str, Given>,
    /// What was written and is no value of its field. Nothing takes its place,
    /// so that one mistake is not followed by findings about its substitute.
    pub(super) refused: BTreeSet<&'static str>,
}

impl Fields {
    /// An object in which nothing was written.
    pub(super) fn empty(object: &'static Object, at: At) -> Self {
        Self { at, object, given: BTreeMap::new(), refused: BTreeSet::new() }
    }

    /// Takes from `base` what is not written here: field by field, and within
    /// objects again field by field. Lists are replaced as a whole.
    pub(super) fn inherit(&mut self, base: &Fields) {
        for field in self.object.fields().filter(|field| !self.refused.contains(field.name)) {
            let Some(inherited) = base.given.get(field.name) else {
                continue;
            };
            match self.given.get_mut(field.name) {
                None => drop(self.given.insert(field.name, inherited.clone())),
                Some(Given { value: Value::Object(own), .. }) if matches!(field.kind, Kind::Object(_)) => {
                    if let Value::Object(inherited) = &inherited.value {
                        own.inherit(inherited);
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Takes the table's default for what is written nowhere. Elements of lists
    /// are left alone: they may have something to inherit first.
    pub(super) fn complete(&mut self, report: &mut Report) {
        for field in self.object.fields().filter(|field| !self.refused.contains(field.name)) {
            if let Some(given) = self.given.get_mut(field.name) {
                if let Value::Object(fields) = &mut given.value {
                    fields.complete(report);
                }
                continue;
            }
            let at = self.at.field(field.name, self.at.origin);
            if let Some(given) = walk::default_value(field, at, report) {
                self.given.insert(field.name, given);
            }
        }
    }

    /// The value of a field, if there is one.
    pub(super) fn get(&self, name: &str) -> Option<&Given> {
        self.given.get(name)
    }

    /// Whether what was written there is no value of that field.
    pub(super) fn is_refused(&self, name: &str) -> bool {
        self.refused.contains(name)
    }

    /// Whether anything was written there, or inherited, a value or not.
    pub(super) fn is_written(&self, name: &str) -> bool {
        self.get(name).is_some() || self.is_refused(name)
    }

    /// Where a field's value was written; the object, if nowhere.
    pub(super) fn at(&self, name: &str) -> At {
        self.get(name).map_or_else(|| self.at.field(name, self.at.origin), |given| given.at.clone())
    }

    pub(super) fn boolean(&self, name: &str) -> Option<bool> {
        match self.get(name)?.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)?.value {
            Value::Number(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn count(&self, name: &str) -> Option<usize> {
        usize::try_from(self.number(name)?).ok()
    }

    pub(super) fn duration(&self, name: &str) -> Option<Duration> {
        match self.get(name)?.value {
            Value::Duration(value) => Some(value),
            _ => None,
        }
    }

    pub(super) fn word(&self, name: &str) -> Option<&'static str> {
        match self.get(name)?.value {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        match &self.get(name)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn header(&self, name: &str) -> Option<&HeaderName> {
        match &self.get(name)?.value {
            Value::Header(header) => Some(header),
            _ => None,
        }
    }

    pub(super) fn template(&self, name: &str) -> Option<&Template> {
        match &self.get(name)?.value {
            Value::Template(template) => Some(template),
            _ => None,
        }
    }

    pub(super) fn list(&self, name: &str) -> &[Given] {
        match self.get(name).map(|given| &given.value) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }

    pub(super) fn redis(&self, name: &str) -> Option<&RedisUrl> {
        match &self.get(name)?.value {
            Value::Redis(url) => Some(url),
            _ => None,
        }
    }

    pub(super) fn fields(&self, name: &str) -> Option<&Fields> {
        match &self.get(name)?.value {
            Value::Object(fields) => Some(fields),
            _ => None,
        }
    }
}
