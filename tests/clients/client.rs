//! A client's script, running.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::support::within;
use super::tools;

/// What a script is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Node,
    Python,
    Go,
}

/// One scenario of a script. It prints a line of JSON for each step it has
/// come to and one for the result.
#[derive(Debug)]
pub(crate) struct Scenario {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    complaints: ChildStderr,
}

impl Scenario {
    /// Starts a scenario of a script. `options` are for the script.
    pub(crate) async fn start(language: Language, script: &str, scenario: &str, options: &Value) -> Self {
        Self::spawn(Self::command(language, script).await, scenario, options)
    }

    /// The same, where the authority in this file is trusted too.
    pub(crate) async fn trusting(ca: &str, language: Language, script: &str, scenario: &str, options: &Value) -> Self {
        let mut command = Self::command(language, script).await;
        command.env("NODE_EXTRA_CA_CERTS", ca).env("SSL_CERT_FILE", ca);
        Self::spawn(command, scenario, options)
    }

    async fn command(language: Language, script: &str) -> Command {
        let mut command = match language {
            Language::Node => {
                let mut command = Command::new("node");
                command.env("NODE_PATH", tools::node_modules().await);
                command.arg(format!("{}/node/{script}.js", tools::SCRIPTS));
                command
            }
            Language::Python => {
                let mut command = Command::new(tools::python().await);
                command.args(["-B", "-u"]).arg(format!("{}/python/with_{script}.py", tools::SCRIPTS));
                command
            }
            Language::Go => Command::new(tools::go().await),
        };
        // The machine's own proxies are not those to be tested.
        for variable in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(variable);
        }
        command
    }

    fn spawn(mut command: Command, scenario: &str, options: &Value) -> Self {
        command.arg(scenario).arg(options.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| tools::absent(&command.as_std().get_program().to_string_lossy(), &error));
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let complaints = child.stderr.take().expect("it is piped");
        Self { child, lines, complaints }
    }

    /// Runs a scenario to its end.
    pub(crate) async fn run(language: Language, script: &str, scenario: &str, options: &Value) -> Value {
        Self::start(language, script, scenario, options).await.result().await
    }

    /// The next step it comes to.
    pub(crate) async fn step(&mut self) -> Value {
        let mut line = self.line().await;
        assert!(line.get("step").is_some(), "a step was to come: {line}");
        line["step"].take()
    }

    /// The result, no step being left.
    pub(crate) async fn result(mut self) -> Value {
        let mut line = self.line().await;
        assert!(line.get("result").is_some(), "the result was to come: {line}");
        line["result"].take()
    }

    async fn line(&mut self) -> Value {
        let line = within("the client says something", self.lines.next_line()).await.expect("its output can be read");
        let Some(line) = line else {
            let mut complaints = String::new();
            let read = within("the client ends", self.complaints.read_to_string(&mut complaints)).await;
            panic!("the client ended: {:?} {read:?}\n{complaints}", self.child.wait().await);
        };
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"))
    }
}

/// Checks that what a client was told is a replay of the only answer there is.
pub(crate) fn is_the_first_answer_again(told: &Value) {
    assert_eq!(
        (&told["status"], &told["outcome"], &told["body"]),
        (&json!(201), &json!("replayed"), &json!(r#"{"id":1}"#))
    );
}
