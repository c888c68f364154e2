//! Who is told of records that stay unknown.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::route::DestinationPlan;

/// When somebody is told, and who.
#[derive(Debug, Clone)]
pub struct Notify {
    /// For how long a record has to have stayed unknown.
    pub after: Duration,
    /// Who is told.
    pub to: Recipient,
}

/// Who is told, with the receipt.
#[derive(Clone)]
pub enum Recipient {
    /// A server that is sent it with POST.
    Webhook {
        /// The server.
        destination: Arc<DestinationPlan>,
        /// The target in origin form.
        target: String,
        /// Headers of the request.
        headers: HeaderMap,
    },
    /// A command that gets it on its standard input.
    Command(Vec<String>),
}

/// Without headers, which may have credentials, and without arguments.
impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Recipient::Webhook { destination, .. } => write!(f, "Webhook({destination})"),
            Recipient::Command(command) => write!(f, "Command({})", command.first().map_or("", String::as_str)),
        }
    }
}
