//! `serve --destination URL`: no file, and messages that name the flag.

use std::path::Path;

use http::Method;

use super::{errors, only_route};
use crate::config::zero;
use crate::plan::{StorePlan, Sync};

#[test]
fn a_destination_is_all_it_needs() {
    let loaded = zero("http://127.0.0.1:9000", None, None, None, None).unwrap();
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let plan = &loaded.plan;
    assert!(plan.addresses().eq(["127.0.0.1:8080".parse().unwrap()]));
    assert_eq!(plan.admin.as_ref().unwrap().address, "127.0.0.1:8081".parse().unwrap());
    assert_eq!(plan.store, StorePlan::Embedded { path: "./onceward-data".into(), sync: Sync::Group });
    let route = only_route(&loaded);
    assert_eq!(route.pattern.as_str(), "/{*rest}");
    assert_eq!(route.methods, [Method::POST, Method::PATCH]);
    assert!(!route.policy.key_required && route.policy.scope_is_default);
}

#[test]
fn flags_take_the_place_of_defaults() {
    let loaded =
        zero("http://api/v1", Some("[::1]:80"), Some("off"), Some(Path::new("/var/lib/x")), Some("{header:X-Tenant}"))
            .unwrap();
    assert!(loaded.plan.addresses().eq(["[::1]:80".parse().unwrap()]));
    assert!(loaded.plan.admin.is_none());
    assert_eq!(loaded.plan.store, StorePlan::Embedded { path: "/var/lib/x".into(), sync: Sync::Group });
    assert_eq!(only_route(&loaded).policy.scope.as_str(), "{header:X-Tenant}");
}

#[test]
fn messages_name_the_flag_and_come_all_at_once() {
    let found = errors(zero("ftp://api", Some("8080"), Some("0.0.0.0:1"), None, Some("{header:}")));
    let flags: Vec<&str> = found.iter().map(|finding| finding.split(": ").nth(1).unwrap()).collect();
    assert_eq!(flags, ["--destination", "--scope", "--listen", "--admin"], "{found:?}");
}

#[test]
fn a_flag_is_taken_as_it_is() {
    let found = errors(zero("http://${HOST}", None, None, None, None));
    assert_eq!(found.len(), 1, "the shell has replaced references already: {found:?}");
    let loaded = zero("http://a", None, None, None, Some("")).unwrap();
    assert!(loaded.warnings.to_string().starts_with("warning: --scope: every caller shares keys"));
}
