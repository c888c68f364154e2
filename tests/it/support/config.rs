//! Configurations, made of the few lines a test is about.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::Path;

/// A configuration without addresses. Each part is the inside of a YAML map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    top: Vec<String>,
    listen: Vec<String>,
    admin: Vec<String>,
    destination: Vec<String>,
    is_https: bool,
    limits: Vec<String>,
    defaults: Vec<String>,
    store: Option<String>,
    routes: Vec<String>,
}

impl Config {
    /// Guards POST and PATCH of `/pay`, with every default as it is.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A line of its own, such as `shutdown_grace: 1s`.
    pub(crate) fn top(mut self, line: &str) -> Self {
        self.top.push(line.to_owned());
        self
    }

    /// Fields of the listener.
    pub(crate) fn listen(mut self, fields: &str) -> Self {
        self.listen.push(fields.to_owned());
        self
    }

    pub(crate) fn admin(mut self, fields: &str) -> Self {
        self.admin.push(fields.to_owned());
        self
    }

    pub(crate) fn destination(mut self, fields: &str) -> Self {
        self.destination.push(fields.to_owned());
        self
    }

    /// Speaks TLS with the destination.
    pub(crate) fn https(mut self) -> Self {
        self.is_https = true;
        self
    }

    pub(crate) fn limits(mut self, fields: &str) -> Self {
        self.limits.push(fields.to_owned());
        self
    }

    /// Policy for all routes.
    pub(crate) fn defaults(mut self, fields: &str) -> Self {
        self.defaults.push(fields.to_owned());
        self
    }

    pub(crate) fn store(mut self, fields: &str) -> Self {
        self.store = Some(fields.to_owned());
        self
    }

    /// Keeps its records in this folder, if it keeps them in any.
    pub(crate) fn folder(self, folder: &Path) -> Self {
        match self.store {
            None => self.store(&format!("embedded: {{ path: \"{}\" }}", folder.display())),
            Some(_) => self,
        }
    }

    /// Keeps its records in this Redis. `fields` is what else is said of it.
    pub(crate) fn redis(self, url: &str, fields: &str) -> Self {
        self.store(&format!("redis: {{ url: \"{url}\", {fields} }}"))
    }

    /// A route; the first one takes the place of `/pay`.
    pub(crate) fn route(mut self, fields: &str) -> Self {
        self.routes.push(fields.to_owned());
        self
    }

    /// The file.
    pub(crate) fn render(&self, listen: SocketAddr, admin: SocketAddr, destination: SocketAddr) -> String {
        let mut file = String::from("version: 1\n");
        let after = |first: String, rest: &[String]| [&[first], rest].concat();
        let listen = after(format!("address: \"{listen}\""), &self.listen);
        let admin = after(format!("address: \"{admin}\""), &self.admin);
        let scheme = if self.is_https { "https" } else { "http" };
        let destination = after(format!("url: \"{scheme}://{destination}\""), &self.destination);
        let store = self.store.as_deref().unwrap_or("embedded: { path: ./data }");
        let mut map = |name: &str, fields: &[String]| {
            if !fields.is_empty() {
                writeln!(file, "{name}: {{ {} }}", fields.join(", ")).expect("a string takes more");
            }
        };
        map("listen", &listen);
        map("admin", &admin);
        map("destination", &destination);
        map("store", &[store.to_owned()]);
        map("limits", &self.limits);
        map("defaults", &self.defaults);
        for line in &self.top {
            writeln!(file, "{line}").expect("a string takes more");
        }
        file.push_str("routes:\n");
        for route in self.routes_or_default() {
            writeln!(file, "  - {{ {route} }}").expect("a string takes more");
        }
        file
    }

    fn routes_or_default(&self) -> Vec<String> {
        if self.routes.is_empty() { vec!["name: pay, path: /pay".to_owned()] } else { self.routes.clone() }
    }
}
