//! A destination's fields → a [`DestinationPlan`].

use std::net::{IpAddr, SocketAddr};

use crate::config::fields::Fields;
use crate::config::finding::{At, Report};
use crate::config::units::show_duration;
use crate::config::value::{DestinationUrl, Value};
use crate::plan::route::DestinationPlan;

/// Compiles a destination whose fields are complete.
pub(super) fn compile(
    fields: Option<&Fields>,
    listen: &[(SocketAddr, At)],
    report: &mut Report,
) -> Option<DestinationPlan> {
    let fields = fields?;
    let (response_timeout, attempt_timeout) = (fields.duration("response_timeout"), fields.duration("attempt_timeout"));
    if let (Some(response), Some(attempt)) = (response_timeout, attempt_timeout)
        && response > attempt
    {
        let message = format!(
            "{} is longer than `attempt_timeout` ({}), which ends any exchange",
            show_duration(response),
            show_duration(attempt)
        );
        report.error(&fields.at("response_timeout"), message);
    }
    let url = match fields.get("url").map(|given| &given.value) {
        Some(Value::Url(url)) => url,
        _ => return None,
    };
    if listen.iter().any(|(address, _)| leads_back(url, address)) {
        report.error(&fields.at("url"), "the proxy itself listens there; every request would come back to it");
    }
    let keep_alive = match fields.get("keep_alive")?.value {
        Value::Off => None,
        Value::Duration(duration) => Some(duration),
        _ => return None,
    };
    Some(DestinationPlan {
        host: url.host.clone(),
        port: url.port,
        authority: url.authority.clone(),
        path_prefix: url.path_prefix.clone(),
        connect_timeout: fields.duration("connect_timeout")?,
        response_timeout: response_timeout?,
        late_answer: fields.duration("late_answer")?,
        body_idle_timeout: fields.duration("body_idle_timeout")?,
        attempt_timeout: attempt_timeout?,
        keep_alive,
        preserve_host: fields.boolean("preserve_host")?,
        preserve_header_case: fields.boolean("preserve_header_case")?,
    })
}

/// Whether a destination written as an address is one that the proxy listens
/// on. Names are not resolved here.
fn leads_back(url: &DestinationUrl, listen: &SocketAddr) -> bool {
    let ip = url.host.parse::<IpAddr>().ok();
    let same_ip = ip.is_some_and(|ip| ip == listen.ip() || (listen.ip().is_unspecified() && ip.is_loopback()));
    same_ip && url.port == listen.port()
}
